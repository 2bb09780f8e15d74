// A stand-in for libcuda.so.1: a few calls of the CUDA driver API with their real names and types, on host memory.
// It is what the example and its tests run on where there is no GPU.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
enum { OK = 0, INVALID = 1, NOMEM = 2, NOINIT = 3, NOTFOUND = 500 };

static int ready;
static uintptr_t next_handle = 0x1000; // differs from run to run of a real driver, as FAKE_CUDA_BASE makes it here

CUresult cuInit(unsigned flags) {
  (void)flags;
  const char *base = getenv("FAKE_CUDA_BASE");
  if (base != NULL) next_handle = strtoull(base, NULL, 0);
  ready = 1;
  return OK;
}

static void *handle(void) { return (void *)(next_handle += 0x10); }

CUresult cuCtxCreate_v2(void **ctx, unsigned flags, CUdevice dev) {
  (void)flags;
  if (!ready) return NOINIT;
  if (ctx == NULL || dev != 0) return INVALID;
  *ctx = handle();
  return OK;
}
CUresult cuCtxDestroy_v2(void *ctx) { return ctx == NULL ? INVALID : OK; }

CUresult cuStreamCreate(void **s, unsigned flags) {
  (void)flags;
  if (s == NULL) return INVALID;
  *s = handle();
  return OK;
}
// A real handle here is a multiple of 16; anything else was not given out by this library.
static int given(void *h) { return h != NULL && ((uintptr_t)h & 15) == 0 && (uintptr_t)h <= next_handle; }
CUresult cuStreamDestroy_v2(void *s) { return given(s) ? OK : INVALID; }
CUresult cuStreamSynchronize(void *s) { return s == NULL || given(s) ? OK : INVALID; }

CUresult cuEventCreate(void **e, unsigned flags) {
  (void)flags;
  if (e == NULL) return INVALID;
  *e = handle();
  return OK;
}
CUresult cuEventDestroy_v2(void *e) { return given(e) ? OK : INVALID; }
CUresult cuEventRecord(void *e, void *s) { return given(e) && (s == NULL || given(s)) ? OK : INVALID; }

#define GRANULE (2u << 20)
static size_t whole(size_t n) { return (n + GRANULE - 1) / GRANULE * GRANULE; }

// A library calls its own functions and not what is preloaded before them.
static CUresult allocate(CUdeviceptr *p, size_t n) {
  if (p == NULL || n == 0) return INVALID;
  // Aligned to a granule, as the first allocation of a real pool is.
  char *at = mmap(NULL, whole(n) + GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return NOMEM;
  char *up = (char *)(((uintptr_t)at + GRANULE - 1) / GRANULE * GRANULE);
  if (up > at) munmap(at, up - at);
  if (at + GRANULE > up) munmap(up + whole(n), at + GRANULE - up);
  *p = (CUdeviceptr)(uintptr_t)up;
  return OK;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { return allocate(p, n); }
CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) {
  (void)flags;
  return allocate(p, n);
}
CUresult cuMemFree_v2(CUdeviceptr p) { return p == 0 ? INVALID : OK; } // the range stays, as in a pool

static CUresult copy(CUdeviceptr d, const void *h, size_t n) {
  memcpy((void *)(uintptr_t)d, h, n);
  return OK;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *h, size_t n) { return copy(d, h, n); }
CUresult cuMemcpyDtoH_v2(void *h, CUdeviceptr d, size_t n) {
  memcpy(h, (void *)(uintptr_t)d, n);
  return OK;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *h, size_t n, void *s) {
  if (s != NULL && !given(s)) return INVALID;
  return copy(d, h, n);
}

// Virtual memory management: an address range, physical memory, and the one mapped into the other.
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr at, unsigned long long flags) {
  (void)align;
  (void)flags;
  void *got = mmap((void *)(uintptr_t)at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return NOMEM;
  *p = (CUdeviceptr)(uintptr_t)got;
  return OK;
}
CUresult cuMemCreate(unsigned long long *h, size_t n, const void *prop, unsigned long long flags) {
  (void)prop;
  (void)flags;
  if (n % GRANULE != 0) return INVALID;
  *h = (unsigned long long)(uintptr_t)handle();
  return OK;
}
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, unsigned long long h, unsigned long long flags) {
  (void)offset;
  (void)flags;
  return p % GRANULE == 0 && n % GRANULE == 0 && given((void *)(uintptr_t)h) ? OK : INVALID;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const void *desc, size_t count) {
  (void)desc;
  (void)count;
  return mprotect((void *)(uintptr_t)p, n, PROT_READ | PROT_WRITE) == 0 ? OK : INVALID;
}
