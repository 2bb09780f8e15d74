/*
 * A process for tests to pause. It loads the library named, as a CUDA process
 * would, starts a thread, says its own ID and the thread's, and ends when its
 * input does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ready[2];

static void *idle(void *unused) {
	long tid = syscall(SYS_gettid);
	if (write(ready[1], &tid, sizeof tid) != sizeof tid)
		_exit(3);
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv) {
	pthread_t thread;
	long tid = 0;
	if (argc > 1 && argv[1][0] && !dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))
		return 2;
	if (pipe(ready) || pthread_create(&thread, NULL, idle, NULL) || read(ready[0], &tid, sizeof tid) != sizeof tid)
		return 3;
	printf("%d %ld\n", (int)getpid(), tid);
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
