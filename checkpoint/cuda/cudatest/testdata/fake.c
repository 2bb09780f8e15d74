/*
 * A library that answers as the checkpoint functions of NVIDIA's libcuda.so.1 are
 * documented to, for tests. All that it knows is in the file "state" beside it,
 * which every process that loads it maps, and which the test writes as well:
 * cudatest.go has the same layout. Compiled with -DCLI it is a program that takes
 * the options of cuda-checkpoint and works on the same file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PROCS = 32, FAULTS = 8, DEVICES = 4, FUNCTIONS = 8 };
enum { GETSTATE = 1, THREADID, LOCK, CHECKPOINT, RESTORE, UNLOCK };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { /* kinds of fault; cudatest.go says what they do */
	CODE = 1, CODEAFTER, SLEEP, BLOCK, BLOCKAFTER, CORRUPT, CRASH, CRASHAFTER,
	KILL, CHANGE, LIE, LIEFAILED, SLOW, SLOWLOCK, CHANGEAFTER
};

struct fault { int32_t fn, at, times, kind, code, arg; };
struct device { uint8_t uuid[16]; int64_t room; int32_t chip, pad; };
struct proc {
	int32_t pid, state, locks, unlocks, poisoned, job, draining, hung;
	int64_t held[DEVICES];
};
struct shared {
	int32_t size, mutex, version, init, inits, calls, changes, released, blocked, over, cli, pad;
	int32_t counts[FUNCTIONS];
	struct fault faults[FAULTS];
	struct device devices[DEVICES];
	struct proc procs[PROCS];
};
struct pair { uint8_t from[16], to[16]; };

static struct shared *map;

/* the path of the state file: beside this library or program */
static void where(char *path, size_t size) {
#ifdef CLI
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	path[n > 0 ? n : 0] = 0;
#else
	Dl_info info;
	path[0] = 0;
	if (dladdr((void *)&map, &info))
		strncpy(path, info.dli_fname, size - 1);
#endif
	char *slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, "state");
}

static struct shared *state(void) {
	struct shared *old = __atomic_load_n(&map, __ATOMIC_ACQUIRE);
	if (old)
		return old;
	char path[4096] = "";
	where(path, sizeof path);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) || st.st_size != sizeof(struct shared)) {
		fprintf(stderr, "fake: no state in %s, or not %zu bytes\n", path, sizeof(struct shared));
		abort();
	}
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	__atomic_store_n(&map, s, __ATOMIC_RELEASE);
	return s;
}

static void nap(void) {
	struct timespec ts = { 0, 200000 };
	nanosleep(&ts, NULL);
}

static int64_t millis(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static void hold(struct shared *s) {
	int32_t free = 0;
	while (!__atomic_compare_exchange_n(&s->mutex, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		free = 0;
		nap();
	}
}

static void drop(struct shared *s) { __atomic_store_n(&s->mutex, 0, __ATOMIC_RELEASE); }

static struct proc *find(struct shared *s, int pid) {
	for (int i = 0; i < PROCS; i++)
		if (s->procs[i].pid == pid && kill(pid, 0) == 0)
			return &s->procs[i];
	return NULL;
}

/* waits until the test releases all who wait */
static void block(struct shared *s) {
	int32_t seen = __atomic_load_n(&s->released, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&s->blocked, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&s->released, __ATOMIC_SEQ_CST) == seen && !__atomic_load_n(&s->over, __ATOMIC_SEQ_CST))
		nap();
	__atomic_sub_fetch(&s->blocked, 1, __ATOMIC_SEQ_CST);
}

static void crash(void) {
	volatile int *nowhere = (volatile int *)8;
	*nowhere = 1;
}

/* kills a process and returns once it is a zombie, or gone */
static void slay(int pid) {
	char path[64], line[512], *end;
	kill(pid, SIGKILL);
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	for (int i = 0; i < 50000; i++, nap()) {
		FILE *file = fopen(path, "r");
		if (!file)
			return;
		end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
		fclose(file);
		if (!end || end[2] == 'Z' || end[2] == 'X')
			return;
	}
}

static void change(struct shared *s, int pid, int to) {
	hold(s);
	struct proc *p = find(s, pid);
	if (p) {
		if (p->state == RUNNING && to != RUNNING)
			p->locks++;
		if (p->state != RUNNING && to == RUNNING)
			p->unlocks++;
		p->state = to;
	}
	drop(s);
}

/* begin counts a call and applies what is planned before it; 1 if *code is all. */
static int begin(struct shared *s, int fn, int pid, struct fault *f, int *code) {
	memset(f, 0, sizeof *f);
	hold(s);
	int all = s->calls++, own = s->counts[fn]++;
	for (int i = 0; i < FAULTS; i++) {
		struct fault *g = &s->faults[i];
		int at = g->fn ? own : all;
		if (g->kind && (!g->fn || g->fn == fn) && at >= g->at && at < g->at + (g->times ? g->times : 1))
			*f = *g;
	}
	drop(s);
	switch (f->kind) {
	case CODE: *code = f->code; return 1;
	case LIE: *code = 0; return fn != GETSTATE;
	case LIEFAILED: change(s, pid, FAILED); *code = 0; return fn != GETSTATE;
	case SLEEP: usleep(f->arg * 1000); break;
	case BLOCK: block(s); break;
	case CRASH: crash(); break;
	case KILL: slay(pid); *code = f->code; return 1;
	case CHANGE: change(s, pid, f->arg); break;
	}
	return 0;
}

/* finish applies what is planned after a call. */
static int finish(struct shared *s, int pid, const struct fault *f, int code) {
	switch (f->kind) {
	case CODEAFTER: return f->code;
	case BLOCKAFTER: block(s); break;
	case CRASHAFTER: crash(); break;
	case CHANGEAFTER: change(s, pid, f->arg); break;
	}
	return code;
}

static int zero(const void *from, size_t n) {
	const uint8_t *b = from;
	for (size_t i = 0; i < n; i++)
		if (b[i])
			return 0;
	return 1;
}

/* whether a peer of p is held while p runs: then calls for p do not return */
static int contended(struct shared *s, struct proc *p) {
	if (!p->job || p->state != RUNNING || p->draining)
		return 0;
	for (int i = 0; i < PROCS; i++) {
		struct proc *q = &s->procs[i];
		if (q != p && q->job == p->job && (q->state == LOCKED || q->state == CHECKPOINTED) && find(s, q->pid) == q)
			return 1;
	}
	return 0;
}

/* whether all peers of p have begun to drain: only then its collective ends */
static int together(struct shared *s, struct proc *p) {
	for (int i = 0; p->job && i < PROCS; i++) {
		struct proc *q = &s->procs[i];
		if (q != p && q->job == p->job && q->state == RUNNING && !q->draining && find(s, q->pid) == q)
			return 0;
	}
	return 1;
}

/* waits while p is contended, until a deadline if that is not 0; with the mutex held */
static struct proc *queue(struct shared *s, int pid, int64_t until) {
	struct proc *p = find(s, pid);
	int counted = 0;
	while (p && contended(s, p) && !s->over && (!until || millis() < until)) {
		if (!counted++)
			__atomic_add_fetch(&s->blocked, 1, __ATOMIC_SEQ_CST);
		drop(s);
		nap();
		hold(s);
		p = find(s, pid);
	}
	if (counted)
		__atomic_sub_fetch(&s->blocked, 1, __ATOMIC_SEQ_CST);
	return p;
}

static int get_state(int pid, int32_t *out) {
	struct shared *s = state();
	struct fault f;
	int code = 0;
	if (begin(s, GETSTATE, pid, &f, &code))
		return code;
	hold(s);
	struct proc *p = queue(s, pid, 0);
	code = p ? 0 : 1;
	if (p)
		*out = p->state;
	drop(s);
	if (f.kind == CORRUPT)
		*out = f.arg;
	return finish(s, pid, &f, code);
}

/* drains p, with the mutex held: 0 if it has drained, 600 if it did not in time */
static int drain(struct shared *s, int pid, uint32_t ms) {
	int64_t until = ms ? millis() + ms : 0;
	struct proc *p = queue(s, pid, until);
	if (p)
		p->draining = 1;
	while (p && (p->hung || contended(s, p) || !together(s, p)) && !s->over) {
		if (until && millis() >= until) {
			p->draining = 0;
			return 600;
		}
		drop(s);
		nap();
		hold(s);
		p = find(s, pid);
	}
	return p ? 0 : 1;
}

static int lock(int pid, const uint8_t *args) {
	struct shared *s = state();
	struct fault f;
	int code = 0;
	if (begin(s, LOCK, pid, &f, &code))
		return code;
	uint32_t ms = 0;
	if (args && !zero(args + 4, 60))
		return finish(s, pid, &f, 1);
	if (args)
		memcpy(&ms, args, 4);
	if (f.kind == SLOW || f.kind == SLOWLOCK)
		usleep(2000 * ms);
	if (f.kind == SLOW)
		return f.code;
	hold(s);
	struct proc *p = find(s, pid);
	if (!p)
		code = 1;
	else if (p->state != RUNNING)
		code = 401;
	else
		code = drain(s, pid, ms);
	if (code == 0) {
		p->state = LOCKED;
		p->draining = 0;
		p->locks++;
		s->changes++;
	}
	drop(s);
	return finish(s, pid, &f, code);
}

static int checkpoint(int pid, const uint8_t *args) {
	struct shared *s = state();
	struct fault f;
	int code = 0;
	if (begin(s, CHECKPOINT, pid, &f, &code))
		return code;
	hold(s);
	struct proc *p = find(s, pid);
	if (!p || (args && !zero(args, 64)))
		code = 1;
	else if (p->state != LOCKED)
		code = 401;
	else {
		for (int i = 0; i < DEVICES; i++)
			s->devices[i].room += p->held[i];
		p->state = CHECKPOINTED;
		s->changes++;
	}
	drop(s);
	return finish(s, pid, &f, code);
}

static int device(struct shared *s, const uint8_t *uuid) {
	for (int i = 0; i < DEVICES; i++)
		if (!zero(s->devices[i].uuid, 16) && memcmp(s->devices[i].uuid, uuid, 16) == 0)
			return i;
	return -1;
}

/* reads the map of restore arguments into to[]: 0, or the code that refuses it */
static int remap(struct shared *s, struct proc *p, const uint8_t *args, int to[DEVICES]) {
	for (int i = 0; i < DEVICES; i++)
		to[i] = i;
	if (!args || zero(args, 64))
		return 0;
	struct pair *pairs;
	uint32_t n;
	memcpy(&pairs, args, 8);
	memcpy(&n, args + 8, 4);
	if (s->version < 13000 || !pairs || !n || !zero(args + 12, 52))
		return 1;
	int covered[DEVICES] = { 0 }, taken[DEVICES] = { 0 };
	for (uint32_t i = 0; i < n; i++) {
		int from = device(s, pairs[i].from), onto = device(s, pairs[i].to);
		if (from < 0 || onto < 0 || covered[from]++ || taken[onto]++ || s->devices[from].chip != s->devices[onto].chip)
			return 1;
		to[from] = onto;
	}
	for (int i = 0; i < DEVICES; i++)
		if (p->held[i] && !covered[i])
			return 1;
	return 0;
}

/* puts the memory of p back, with the mutex held */
static int refill(struct shared *s, struct proc *p, const int to[DEVICES]) {
	int64_t held[DEVICES] = { 0 };
	for (int i = 0; i < DEVICES; i++)
		held[to[i]] += p->held[i];
	for (int i = 0; i < DEVICES; i++)
		if (held[i] > s->devices[i].room) {
			p->poisoned = 1;
			return 2;
		}
	for (int i = 0; i < DEVICES; i++)
		s->devices[i].room -= held[i];
	memcpy(p->held, held, sizeof held);
	p->state = LOCKED;
	s->changes++;
	return 0;
}

static int restore(int pid, const uint8_t *args) {
	struct shared *s = state();
	struct fault f;
	int code = 0, to[DEVICES];
	if (begin(s, RESTORE, pid, &f, &code))
		return code;
	hold(s);
	struct proc *p = find(s, pid);
	if (!p)
		code = 1;
	else if (p->poisoned)
		code = 304; /* one failure for want of memory is for good */
	else if (p->state != CHECKPOINTED)
		code = 401;
	else if (!(code = remap(s, p, args, to)))
		code = refill(s, p, to);
	drop(s);
	return finish(s, pid, &f, code);
}

static int unlock(int pid, const uint8_t *args) {
	struct shared *s = state();
	struct fault f;
	int code = 0;
	if (begin(s, UNLOCK, pid, &f, &code))
		return code;
	hold(s);
	struct proc *p = find(s, pid);
	if (!p || (args && !zero(args, 64)))
		code = 1;
	else if (p->poisoned || p->state != LOCKED)
		code = 401;
	else {
		p->state = RUNNING;
		p->unlocks++;
		s->changes++;
	}
	drop(s);
	return finish(s, pid, &f, code);
}

#ifndef CLI
int cuInit(unsigned int flags) {
	struct shared *s = state();
	__atomic_add_fetch(&s->inits, 1, __ATOMIC_SEQ_CST);
	return flags ? 1 : s->init;
}
int cuDriverGetVersion(int *version) { *version = state()->version; return 0; }
int cuCheckpointProcessGetState(int pid, int32_t *out) { return get_state(pid, out); }
int cuCheckpointProcessGetRestoreThreadId(int pid, int32_t *tid) { *tid = pid; return find(state(), pid) ? 0 : 1; }
int cuCheckpointProcessLock(int pid, const uint8_t *args) { return lock(pid, args); }
int cuCheckpointProcessCheckpoint(int pid, const uint8_t *args) { return checkpoint(pid, args); }
int cuCheckpointProcessRestore(int pid, const uint8_t *args) { return restore(pid, args); }
int cuCheckpointProcessUnlock(int pid, const uint8_t *args) { return unlock(pid, args); }
int cuCheckpointOperationComplete(void *handle) { return handle ? 0 : 1; }
#else

static const char *text(int code) {
	switch (code) {
	case 1: return "invalid argument";
	case 2: return "out of memory";
	case 3: return "initialization error";
	case 34: return "CUDA driver is a stub library";
	case 36: return "API call is not supported in the installed CUDA driver";
	case 100: return "no CUDA-capable device is detected";
	case 304: return "OS call failed or operation not supported on this OS";
	case 401: return "the operation cannot be performed in the present state";
	case 500: return "named symbol not found";
	case 600: return "device not ready";
	case 801: return "operation not supported";
	case 803: return "system has unsupported display driver / cuda driver combination";
	case 909: return "wait operation timed out";
	}
	return "unknown error";
}

static int hex(const char *s, uint8_t *out) {
	int n = 0;
	if (strncmp(s, "GPU-", 4) == 0)
		s += 4;
	for (; *s && *s != '=' && *s != ','; s++) {
		int v = *s >= '0' && *s <= '9' ? *s - '0' : *s >= 'a' && *s <= 'f' ? *s - 'a' + 10 : -1;
		if (*s == '-')
			continue;
		if (v < 0 || n == 32)
			return 0;
		out[n / 2] = (uint8_t)(n % 2 ? out[n / 2] | v : v << 4);
		n++;
	}
	return n == 32;
}

static int act(const char *what, int pid, uint32_t ms, char *devices) {
	uint8_t args[64] = { 0 };
	struct pair pairs[DEVICES];
	if (!strcmp(what, "lock")) {
		memcpy(args, &ms, 4);
		return lock(pid, args);
	}
	if (!strcmp(what, "checkpoint"))
		return checkpoint(pid, args);
	if (!strcmp(what, "unlock"))
		return unlock(pid, args);
	if (strcmp(what, "restore"))
		return 1;
	uint32_t n = 0;
	for (char *p = devices ? strtok(devices, ",") : NULL; p; p = strtok(NULL, ","), n++) {
		char *to = strchr(p, '=');
		if (n == DEVICES || !to || !hex(p, pairs[n].from) || !hex(to + 1, pairs[n].to))
			return 1;
	}
	if (n) {
		struct pair *first = pairs;
		memcpy(args, &first, 8);
		memcpy(args + 8, &n, 4);
	}
	return restore(pid, args);
}

static void help(int old) {
	printf("A made-up checkpoint utility.\nVersion %s. For tests.\n\nOperations:\n--toggle --pid <pid>\n", old ? "550.54.15" : "580.65.06");
	if (!old)
		printf("--get-state --pid <pid>\n--action lock | checkpoint | restore | unlock --pid <pid> [--timeout <ms>] [--device-map <uuids>]\n");
}

int main(int argc, char **argv) {
	static const char *names[] = { "running", "locked", "checkpointed", "failed" };
	struct shared *s = state();
	int pid = 0, get = 0, code;
	uint32_t ms = 0;
	char *what = NULL, *devices = NULL;
	if (s->cli == 127) {
		fprintf(stderr, "cuda-checkpoint: error while loading shared libraries: libcuda.so.1\n");
		return 127;
	}
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "--help")) {
			help(s->cli == 550);
			return 0;
		} else if (!strcmp(argv[i], "--get-state"))
			get = 1;
		else if (!strcmp(argv[i], "--pid"))
			pid = atoi(value), i++;
		else if (!strcmp(argv[i], "--timeout"))
			ms = (uint32_t)strtoul(value, NULL, 10), i++;
		else if (!strcmp(argv[i], "--action"))
			what = argv[++i];
		else if (!strcmp(argv[i], "--device-map"))
			devices = argv[++i];
		else
			return 2;
	}
	int32_t st = -1;
	code = get ? get_state(pid, &st) : act(what ? what : "", pid, ms, devices);
	if (code) {
		fprintf(stderr, "Could not %s on process ID %d: \"%s\"\n", get ? "get state" : what, pid, text(code));
		return 1;
	}
	if (get && st >= 0 && st <= 3)
		printf("%s\n", names[st]);
	else if (get)
		printf("state%d\n", st);
	return 0;
}
#endif
