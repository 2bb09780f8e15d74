/*
 * A library that answers as NVML does, for tests. It is compiled with NVIDIA's
 * header nvml.h as go-nvml carries it, so that functions and structures have the
 * layout that the real library has: handles are pointers, which that header wraps
 * in structures. What it says is made up.
 *
 * FAKE_NVML names the scenario; it is read whenever the library is initialised.
 * Compiled with -DOLD it lacks what came after 2016, with -DBARE it lacks even
 * what every library has, with -DFABRIC1 it has only the first way to ask about
 * the fabric.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 64

struct nvmlDevice_st {
	int index;  /* of the GPU */
	int slice;  /* of the MIG device, -1 for a GPU */
};

static struct nvmlDevice_st gpus[MAX], migs[MAX][8];
static char scenario[64];
static int initialised;

static int is(const char *name) { return strcmp(scenario, name) == 0; }

/* how many GPUs the scenario has */
static int count(void) {
	if (is("empty"))
		return 0;
	if (is("nvswitch8") || is("degraded"))
		return 8;
	if (is("many"))
		return 65;
	if (is("mig2"))
		return 2;
	return 4;
}

/* how many NVLinks each GPU has */
__attribute__((unused)) static unsigned int links(void) {
	if (is("nvswitch8") || is("degraded"))
		return 18;
	if (is("mesh4"))
		return 6;
	if (is("mig2"))
		return 12;
	return 0;
}

static nvmlReturn_t ready(nvmlDevice_t d) {
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	if (is("lost") && d.handle->index == 1)
		return NVML_ERROR_GPU_IS_LOST;
	return NVML_SUCCESS;
}

#define READY(d)                                   \
	do {                                           \
		nvmlReturn_t ready_ = ready(d);            \
		if (ready_ != NVML_SUCCESS) return ready_; \
	} while (0)

#ifndef BARE
nvmlReturn_t nvmlInit_v2(void) {
	const char *name = getenv("FAKE_NVML");
	snprintf(scenario, sizeof scenario, "%s", name ? name : "pcie4");
	for (int i = 0; i < MAX; i++) {
		gpus[i].index = i;
		gpus[i].slice = -1;
		for (int j = 0; j < 8; j++) {
			migs[i][j].index = i;
			migs[i][j].slice = j;
		}
	}
	if (is("nodriver"))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (is("mismatch"))
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	initialised++;
	return NVML_SUCCESS;
}
#endif

nvmlReturn_t nvmlShutdown(void) {
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	initialised--;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
	snprintf(version, length, "570.86.15");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
	snprintf(version, length, "12.570.86.15");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) {
	*n = count();
	return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *d) {
	if ((int)index >= count() || index >= MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	d->handle = &gpus[index];
	READY(*d);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int length) {
	READY(d);
	if (is("errors") && d.handle->index == 2)
		return NVML_ERROR_UNKNOWN;
	if (is("odd")) {
		snprintf(uuid, length, "GPU twice");
		return NVML_SUCCESS;
	}
	if (d.handle->slice >= 0)
		snprintf(uuid, length, "MIG-%08d-0000-4000-8000-%012d", d.handle->index, d.handle->slice);
	else
		snprintf(uuid, length, "GPU-%08d-0000-4000-8000-000000000000", d.handle->index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned int length) {
	READY(d);
	snprintf(name, length, "NVIDIA Fake");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *minor) {
	READY(d);
	*minor = d.handle->index;
	return NVML_SUCCESS;
}

static void pci(nvmlPciInfo_t *info, int bus) {
	memset(info, 0, sizeof *info);
	info->bus = bus;
	snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", 0, bus, 0);
	snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", 0, bus, 0);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *info) {
	READY(d);
	if (is("odd")) { /* not even an end */
		memset(info, 'x', sizeof *info);
		return NVML_SUCCESS;
	}
	pci(info, 0x1a + d.handle->index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory) {
	READY(d);
	memory->total = is("odd") ? ~0ull : 80ull << 30;
	memory->used = memory->free = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned int *generation) {
	READY(d);
	*generation = is("odd") ? 99 : 5;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned int *width) {
	READY(d);
	*width = 16;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned int n, unsigned long *set) {
	READY(d);
	memset(set, 0, n * sizeof *set);
	int half = count() > 1 && d.handle->index >= count() / 2;
	for (int cpu = 0; cpu < 4; cpu++) {
		unsigned int at = half * 64 + cpu;
		if (at / (8 * sizeof *set) < n)
			set[at / (8 * sizeof *set)] |= 1ul << at % (8 * sizeof *set);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level) {
	READY(a);
	READY(b);
	int i = a.handle->index < b.handle->index ? a.handle->index : b.handle->index, j = a.handle->index < b.handle->index ? b.handle->index : a.handle->index;
	if (is("odd"))
		*level = 35;
	else if (is("errors"))
		return NVML_ERROR_UNKNOWN;
	else if (count() == 8 || is("mesh4") || is("mig2"))
		*level = i / 4 == j / 4 ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
	else if (i == 0 && j == 1)
		*level = NVML_TOPOLOGY_SINGLE;
	else if (i == 2 && j == 3)
		*level = NVML_TOPOLOGY_MULTIPLE;
	else
		*level = NVML_TOPOLOGY_SYSTEM;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
	READY(d);
	*current = *pending = d.handle->index == 3 ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *n) {
	READY(d);
	*n = 100 * (type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED) + 10 * (counter == NVML_AGGREGATE_ECC) + d.handle->index;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned int *t) {
	READY(d);
	*t = sensor == NVML_TEMPERATURE_GPU ? 40 + d.handle->index : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned int *mhz) {
	READY(d);
	*mhz = type == NVML_CLOCK_SM ? 1410 : 2619;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned int *mhz) {
	READY(d);
	*mhz = type == NVML_CLOCK_SM ? 1980 : 2619;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *reasons) {
	READY(d);
	*reasons = 4;
	return NVML_SUCCESS;
}

/* Events: one XID of each watched device, and then none. */

struct nvmlEventSet_st {
	nvmlDevice_t devices[MAX];
	int n, at;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	set->handle = calloc(1, sizeof *set->handle);
	return set->handle ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types) {
	READY(d);
	*types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set) {
	READY(d);
	if (types & ~(unsigned long long)(nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError))
		return NVML_ERROR_NOT_SUPPORTED;
	set.handle->devices[set.handle->n++] = d;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int ms) {
	(void)ms;
	if (set.handle->at == set.handle->n)
		return is("breaks") ? NVML_ERROR_UNKNOWN : NVML_ERROR_TIMEOUT;
	memset(data, 0, sizeof *data);
	data->device = set.handle->devices[is("storm") ? 0 : set.handle->at];
	data->eventType = nvmlEventTypeXidCriticalError;
	data->eventData = is("storm") ? 79 : 79 + set.handle->at;
	data->gpuInstanceId = set.handle->at == 0 ? 0xffffffff : 3;
	data->computeInstanceId = 0xffffffff;
	set.handle->at++;
	return NVML_SUCCESS;
}

#ifndef OLD

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
	*version = 12080;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
	READY(d);
	*major = 9;
	*minor = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned int n, unsigned long *set, nvmlAffinityScope_t scope) {
	READY(d);
	memset(set, 0, n * sizeof *set);
	if (scope == NVML_AFFINITY_SCOPE_NODE)
		set[0] = is("odd") ? 3 : 1ul << (count() > 1 && d.handle->index >= count() / 2);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t d, unsigned int *node) {
	READY(d);
	if (!is("nvswitch8"))
		return NVML_ERROR_NOT_SUPPORTED;
	*node = 8 + d.handle->index;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t cap, nvmlGpuP2PStatus_t *status) {
	READY(a);
	READY(b);
	if (is("odd"))
		*status = 77;
	else if (is("degraded") && cap == NVML_P2P_CAPS_INDEX_NVLINK && (a.handle->index == 7 || b.handle->index == 7))
		*status = NVML_P2P_STATUS_NOT_SUPPORTED;
	else if (is("mig2"))
		*status = NVML_P2P_STATUS_GPU_NOT_SUPPORTED;
	else if (links() > 0)
		*status = NVML_P2P_STATUS_OK;
	else
		*status = cap == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, nvmlEnableState_t *state) {
	READY(d);
	if (links() == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (link >= links())
		return NVML_ERROR_INVALID_ARGUMENT;
	*state = NVML_FEATURE_ENABLED;
	if (is("degraded") && d.handle->index == 3 && link % 2)
		*state = NVML_FEATURE_DISABLED;
	if (is("mesh4") && d.handle->index == 0 && link == 1)
		*state = NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

/* In mesh4 links 0 and 1 go to the next GPU and 2 and 3 to the one before, but from
   GPU 3 on they wrap around; 4 goes to the one across, 5 to a processor. */
static int peer(int index, unsigned int link) {
	switch (link) {
	case 0: case 1:
		return (index + 1) % 4;
	case 2: case 3:
		return (index + 3) % 4;
	}
	return (index + 2) % 4;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *info) {
	READY(d);
	if (is("mig2"))
		return NVML_ERROR_NOT_SUPPORTED; /* as in a virtual machine */
	if (is("mesh4"))
		pci(info, link == 5 ? 0 : 0x1a + peer(d.handle->index, link));
	else
		pci(info, 0x80 + link % 4);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
	READY(d);
	if (is("mesh4"))
		*type = link == 5 ? NVML_NVLINK_DEVICE_TYPE_IBMNPU : NVML_NVLINK_DEVICE_TYPE_GPU;
	else
		*type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *values) {
	READY(d);
	for (int i = 0; i < n; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId == NVML_FI_DEV_NVLINK_GET_SPEED && links() == 18) {
			values[i].nvmlReturn = NVML_SUCCESS;
			values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			values[i].value.uiVal = 26562;
		}
		if (values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && is("sick")) {
			values[i].nvmlReturn = NVML_SUCCESS;
			values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			values[i].value.uiVal = d.handle->index;
		}
	}
	return NVML_SUCCESS;
}

static void cluster(unsigned char *uuid) {
	for (int i = 0; i < NVML_GPU_FABRIC_UUID_LEN; i++)
		uuid[i] = 0xa0 + i;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *info) {
	READY(d);
	if (count() != 8)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(info, 0, sizeof *info);
	cluster(info->clusterUuid);
	info->cliqueId = 7;
	info->state = NVML_GPU_FABRIC_STATE_COMPLETED;
	return NVML_SUCCESS;
}

#ifndef FABRIC1
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *any) {
	READY(d);
	if (count() != 8)
		return NVML_ERROR_NOT_SUPPORTED;
	if (any->version != nvmlGpuFabricInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlGpuFabricInfo_v2_t *info = (nvmlGpuFabricInfo_v2_t *)any;
	cluster(info->clusterUuid);
	info->cliqueId = 7;
	info->state = NVML_GPU_FABRIC_STATE_COMPLETED;
	info->healthMask = 0xaa;
	info->status = NVML_SUCCESS;
	if (is("degraded") && d.handle->index == 0)
		info->state = NVML_GPU_FABRIC_STATE_IN_PROGRESS;
	if (is("degraded") && d.handle->index == 1)
		info->status = NVML_ERROR_RESET_REQUIRED;
	return NVML_SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *current, unsigned int *pending) {
	READY(d);
	if (is("pcie4"))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = is("mig2") && d.handle->index == 0;
	*pending = is("mig2");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *n) {
	READY(d);
	*n = 7;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int index, nvmlDevice_t *mig) {
	READY(d);
	if (index != 0 && index != 2)
		return NVML_ERROR_NOT_FOUND;
	mig->handle = &migs[d.handle->index][index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id) {
	*id = 1 + d.handle->slice;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *id) {
	(void)d;
	*id = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) {
	memset(a, 0, sizeof *a);
	a->gpuInstanceSliceCount = d.handle->slice == 0 ? 3 : 1;
	a->memorySizeMB = d.handle->slice == 0 ? 40192 : 9728;
	return NVML_SUCCESS;
}

struct nvmlGpuInstance_st {
	unsigned int id;
};

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *instance) {
	static struct nvmlGpuInstance_st instances[8];
	READY(d);
	instances[id % 8].id = id;
	instance->handle = &instances[id % 8];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
	memset(info, 0, sizeof *info);
	info->device.handle = &gpus[0];
	info->id = instance.handle->id;
	if (instance.handle->id != 1)
		return NVML_ERROR_NO_PERMISSION;
	info->placement.start = 4;
	info->placement.size = 4;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed) {
	READY(d);
	*corrected = 1;
	*uncorrected = 2;
	*pending = 1;
	*failed = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *reasons) {
	READY(d);
	*reasons = 1 << d.handle->index;
	return NVML_SUCCESS;
}

#endif
