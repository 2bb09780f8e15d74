/*
 * What the library made for tests lacks: usage, power and energy. The compiler
 * includes it before that library's source (internal/nvml/testdata/fake.c), whose
 * handles begin with the number of the GPU. GPU 3 is cut up into MIG instances as
 * far as its utilization goes, GPU 2 is too old to measure energy. What it says is
 * made up.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>

static int number(nvmlDevice_t d) { return *(int *)d.handle; }

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *rates) {
	if (number(d) == 3)
		return NVML_ERROR_NOT_SUPPORTED;
	rates->gpu = 50 + 10 * number(d);
	rates->memory = 5;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *milliwatts) {
	*milliwatts = 300500 + 1000 * number(d);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *millijoules) {
	if (number(d) == 2)
		return NVML_ERROR_NOT_SUPPORTED;
	*millijoules = 5000000000250ull;
	return NVML_SUCCESS;
}
