// The shim: preloaded before libcuda, it passes calls on and writes down, in the form of package cudalog, those that
// make or end something. The job gets virtual handles, so that it can be given other real ones later.
//
//   LD_PRELOAD=./shim.so CUDASHIM_LOG=job.log ./job
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

enum { CREATE = 1, SET = 2, DESTROY = 3, REFUSE = 4 };                        // cudalog.Op
enum { CONTEXT = 1, STREAM = 2, EVENT = 3, MEMORY = 6 };                      // cudalog.Kind
enum { MAX_OBJECTS = 1 << 16, NOT_READY = 3 /* CUDA_ERROR_NOT_INITIALIZED */ };

// One lock around every call that is written down: the log has the order in which the driver did them.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static uint64_t last;    // handle given out
static uint64_t current; // context that new objects belong to

// What stands behind a handle. A virtual handle is its number with a tag in the top bits, which no driver's pointer has.
static struct {
  uint64_t real;
  int kind;
  int alive;
} objects[MAX_OBJECTS];

static const uint64_t tag = 0x5ca1ull << 48;
static void *virtual_of(uint64_t h) { return (void *)(uintptr_t)(tag | h); }

// real_of translates what the job passes; what is not ours, such as NULL for the default stream, stays as it is.
static void *real_of(void *v) {
  uint64_t h = (uint64_t)(uintptr_t)v;
  if ((h & tag) != tag || (h & ~tag) >= MAX_OBJECTS) return v;
  return (void *)(uintptr_t)objects[h & ~tag].real;
}

static void *real_function(const char *name) {
  void *f = dlsym(RTLD_NEXT, name);
  if (f == NULL) fprintf(stderr, "cudashim: the driver has no %s\n", name);
  return f;
}

static uint32_t crc32c(const uint8_t *p, size_t n) {
  uint32_t crc = ~0u;
  while (n-- > 0) {
    crc ^= *p++;
    for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

static size_t put(uint8_t *b, uint64_t v) {
  size_t n = 0;
  while (v >= 0x80) {
    b[n++] = (uint8_t)v | 0x80;
    v >>= 7;
  }
  b[n++] = (uint8_t)v;
  return n;
}

static void put32(uint8_t *b, uint32_t v) {
  for (int i = 0; i < 4; i++) b[i] = (uint8_t)(v >> 8 * i);
}

// note appends a record with one write, so that a crash leaves at most one torn record, at the end.
static void note(int op, int kind, uint64_t handle, uint64_t owner, uint64_t addr, uint64_t size, const char *args) {
  if (log_fd < 0) {
    const char *path = getenv("CUDASHIM_LOG");
    if (path == NULL) return;
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) {
      perror("cudashim");
      exit(1);
    }
    const char header[] = "lockstep/cudalog 1\n";
    if (lseek(log_fd, 0, SEEK_END) == 0 && write(log_fd, header, sizeof header - 1) < 0) perror("cudashim");
  }
  uint8_t b[512];
  size_t n = 8, len = strlen(args);
  b[n++] = (uint8_t)op;
  b[n++] = (uint8_t)kind;
  n += put(b + n, handle);
  n += put(b + n, owner);
  n += put(b + n, 0); // key
  n += put(b + n, addr);
  n += put(b + n, size);
  n += put(b + n, 0); // device
  n += put(b + n, 0); // uses
  n += put(b + n, len);
  memcpy(b + n, args, len);
  n += len;
  put32(b, (uint32_t)(n - 8));
  put32(b + 4, crc32c(b + 8, n - 8));
  if (write(log_fd, b, n) != (ssize_t)n) {
    // Going on would leave a log that does not say what the job holds.
    perror("cudashim: the log");
    exit(1);
  }
}

// made gives what the driver made a handle and writes it down.
static uint64_t made(int kind, uint64_t real, uint64_t owner, uint64_t addr, uint64_t size, const char *args) {
  if (last + 1 >= MAX_OBJECTS) {
    fprintf(stderr, "cudashim: out of handles\n");
    exit(1);
  }
  uint64_t h = ++last;
  objects[h].real = real;
  objects[h].kind = kind;
  objects[h].alive = 1;
  note(CREATE, kind, h, owner, addr, size, args);
  return h;
}

// ended writes an end down.
static void ended(int kind, uint64_t h) {
  if (h == 0 || h > last || !objects[h].alive) return;
  objects[h].alive = 0;
  note(DESTROY, kind, h, 0, 0, 0, "");
}

#define REAL(name, type)                                   \
  static __typeof__(type) real;                            \
  if (real == NULL) real = (__typeof__(type))real_function(#name); \
  if (real == NULL) return NOT_READY

CUresult cuCtxCreate_v2(void **ctx, unsigned flags, CUdevice dev) {
  REAL(cuCtxCreate_v2, CUresult(*)(void **, unsigned, CUdevice));
  pthread_mutex_lock(&lock);
  CUresult r = real(ctx, flags, dev);
  if (r == 0) {
    char args[32];
    snprintf(args, sizeof args, "flags=%u", flags);
    current = made(CONTEXT, (uint64_t)(uintptr_t)*ctx, 0, 0, 0, args);
    *ctx = virtual_of(current);
  }
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuCtxDestroy_v2(void *ctx) {
  REAL(cuCtxDestroy_v2, CUresult(*)(void *));
  pthread_mutex_lock(&lock);
  CUresult r = real(real_of(ctx));
  if (r == 0) ended(CONTEXT, (uint64_t)(uintptr_t)ctx & ~tag);
  pthread_mutex_unlock(&lock);
  return r;
}

// Streams and events are alike: made with flags, ended by their handle.
#define PAIR(create, destroy, kind)                                          \
  CUresult create(void **h, unsigned flags) {                                \
    REAL(create, CUresult(*)(void **, unsigned));                            \
    pthread_mutex_lock(&lock);                                               \
    CUresult r = real(h, flags);                                             \
    if (r == 0) {                                                            \
      char args[32];                                                         \
      snprintf(args, sizeof args, "flags=%u", flags);                        \
      *h = virtual_of(made(kind, (uint64_t)(uintptr_t)*h, current, 0, 0, args)); \
    }                                                                        \
    pthread_mutex_unlock(&lock);                                             \
    return r;                                                                \
  }                                                                          \
  CUresult destroy(void *h) {                                                \
    REAL(destroy, CUresult(*)(void *));                                      \
    pthread_mutex_lock(&lock);                                               \
    CUresult r = real(real_of(h));                                           \
    if (r == 0) ended(kind, (uint64_t)(uintptr_t)h & ~tag);                  \
    pthread_mutex_unlock(&lock);                                             \
    return r;                                                                \
  }

PAIR(cuStreamCreate, cuStreamDestroy_v2, STREAM)
PAIR(cuEventCreate, cuEventDestroy_v2, EVENT)

CUresult cuStreamSynchronize(void *s) {
  REAL(cuStreamSynchronize, CUresult(*)(void *));
  return real(real_of(s)); // may take long: no lock
}

CUresult cuEventRecord(void *e, void *s) {
  REAL(cuEventRecord, CUresult(*)(void *, void *));
  return real(real_of(e), real_of(s));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *h, size_t n, void *s) {
  REAL(cuMemcpyHtoDAsync_v2, CUresult(*)(CUdeviceptr, const void *, size_t, void *));
  return real(d, h, n, real_of(s));
}

// Memory keeps its address: the job's own pointers and those inside its memory stay right.
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  REAL(cuMemAlloc_v2, CUresult(*)(CUdeviceptr *, size_t));
  pthread_mutex_lock(&lock);
  CUresult r = real(p, n);
  if (r == 0) made(MEMORY, *p, current, *p, n, "");
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  REAL(cuMemFree_v2, CUresult(*)(CUdeviceptr));
  pthread_mutex_lock(&lock);
  // Written down first: once the driver has it back, another thread may be given the same address.
  for (uint64_t h = last; h > 0; h--) {
    if (objects[h].alive && objects[h].kind == MEMORY && objects[h].real == p) {
      ended(MEMORY, h);
      break;
    }
  }
  CUresult r = real(p);
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) {
  REAL(cuMemAllocManaged, CUresult(*)(CUdeviceptr *, size_t, unsigned));
  pthread_mutex_lock(&lock);
  note(REFUSE, MEMORY, 0, 0, 0, 0, "managed memory");
  CUresult r = real(p, n, flags);
  pthread_mutex_unlock(&lock);
  return r;
}
