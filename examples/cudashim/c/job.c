// A job that uses CUDA: it makes things, drops some of them, and prints where its weights are.
#include <stdio.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
CUresult cuInit(unsigned);
CUresult cuCtxCreate_v2(void **, unsigned, int);
CUresult cuStreamCreate(void **, unsigned);
CUresult cuStreamDestroy_v2(void *);
CUresult cuStreamSynchronize(void *);
CUresult cuEventCreate(void **, unsigned);
CUresult cuEventDestroy_v2(void *);
CUresult cuEventRecord(void *, void *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, void *);

#define MUST(call)                                    \
  do {                                                \
    int r = (call);                                   \
    if (r != 0) {                                     \
      fprintf(stderr, "job: %s: error %d\n", #call, r); \
      return 1;                                       \
    }                                                 \
  } while (0)

int main(int argc, char **argv) {
  void *ctx, *compute, *copy, *scratch, *done;
  CUdeviceptr weights, activations;
  const char text[] = "weights of layer 0";
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&ctx, 0, 0));
  MUST(cuStreamCreate(&compute, 1));
  MUST(cuStreamCreate(&copy, 1));
  MUST(cuMemAlloc_v2(&weights, 3 << 20));
  for (int step = 0; step < 100; step++) { // what every step makes and drops
    MUST(cuMemAlloc_v2(&activations, 1 << 20));
    MUST(cuStreamCreate(&scratch, 0));
    MUST(cuEventCreate(&done, 0));
    MUST(cuMemcpyHtoDAsync_v2(weights, text, sizeof text, copy));
    MUST(cuEventRecord(done, copy));
    MUST(cuStreamSynchronize(copy));
    MUST(cuEventDestroy_v2(done));
    MUST(cuStreamDestroy_v2(scratch));
    MUST(cuMemFree_v2(activations));
  }
  if (argc > 1 && strcmp(argv[1], "managed") == 0) MUST(cuMemAllocManaged(&activations, 1 << 20, 1));
  printf("0x%llx\n", weights);
  return 0;
}
