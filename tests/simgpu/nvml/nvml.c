/* SPDX-License-Identifier: Apache-2.0 */
/* A double of libnvidia-ml.so.1 for the simulated GPU, with the calls that PyTorch, NCCL and pynvml
 * make. An index counts physical devices: NVML ignores CUDA_VISIBLE_DEVICES.
 *
 * For what the simulated board lacks (NVLink, MIG, fabric, fans) it returns
 * NVML_ERROR_NOT_SUPPORTED, as for a real board without it. */
#include "nvml_abi.h"
#include "usage.h"

#include "../driver/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EXPORT(type, name, params)                           \
    __attribute__((visibility("default"))) type name params; \
    type name params
#define API(name, params) EXPORT(nvmlReturn_t, name, params)

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned init_count;

/* A handle is the address of its device's entry here. */
struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st handles[SIM_MAX_DEVICES];

static nvmlReturn_t init(void)
{
    pthread_mutex_lock(&init_lock);
    if (init_count++ == 0) {
        sim_settings_read();
    }
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

static int is_initialized(void)
{
    pthread_mutex_lock(&init_lock);
    int initialized = init_count > 0;
    pthread_mutex_unlock(&init_lock);
    return initialized;
}

API(nvmlInit, (void))
{
    return init();
}

API(nvmlInit_v2, (void))
{
    return init();
}

API(nvmlInitWithFlags, (unsigned flags))
{
    (void)flags;
    return init();
}

API(nvmlShutdown, (void))
{
    pthread_mutex_lock(&init_lock);
    nvmlReturn_t result = init_count ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    init_count -= init_count > 0;
    pthread_mutex_unlock(&init_lock);
    return result;
}

EXPORT(const char *, nvmlErrorString, (nvmlReturn_t result))
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument Version Mismatch";
    default:
        return "Unknown Error";
    }
}

static nvmlReturn_t give_text(char *out, unsigned length, const char *text)
{
    if (!out) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strlen(text) + 1 > length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_number(unsigned *out, unsigned number)
{
    if (!out) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *out = number;
    return NVML_SUCCESS;
}

/* The device's number; -1 for an invalid handle. */
static int index_of(nvmlDevice_t handle)
{
    for (int i = 0; i < (int)sim_settings.devices; i++) {
        if (handle == &handles[i]) {
            return i;
        }
    }
    return -1;
}

/* Every call on a device begins with these checks. */
#define ENTER_DEVICE(handle)                \
    if (!is_initialized()) {                \
        return NVML_ERROR_UNINITIALIZED;    \
    }                                       \
    int device = index_of(handle);          \
    if (device < 0) {                       \
        return NVML_ERROR_INVALID_ARGUMENT; \
    }

/* The last part of the version: "01", or another number if settings change the driver's answers. So
 * nobody who remembers one driver's answers takes them for another's. */
static unsigned revision(void)
{
    unsigned hash = 0;
    for (const char *at = sim_settings.fail; *at; at++) {
        hash = hash * 31 + (unsigned char)*at;
    }
    hash = hash * 8 + (sim_settings.contents ? 0u : 1u) + (sim_settings.vmm ? 0u : 2u) +
           (sim_settings.host_numa ? 0u : 4u);
    return hash ? 2 + hash % 99989 : 1;
}

API(nvmlSystemGetDriverVersion, (char *out, unsigned length))
{
    char text[32];
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    /* The branch that belongs to a CUDA version has a number of its own; any number can be
     * parsed. */
    snprintf(text, sizeof(text), "5%llu.00.%02u",
             (unsigned long long)(sim_settings.driver_version / 10 % 100 + 70), revision());
    return give_text(out, length, text);
}

API(nvmlSystemGetNVMLVersion, (char *out, unsigned length))
{
    char text[32];
    snprintf(text, sizeof(text), "%llu.5%llu.00.01",
             (unsigned long long)(sim_settings.driver_version / 1000),
             (unsigned long long)(sim_settings.driver_version / 10 % 100 + 70));
    return is_initialized() ? give_text(out, length, text) : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t cuda_driver_version(int *version)
{
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    return give_number((unsigned *)version, (unsigned)sim_settings.driver_version);
}

API(nvmlSystemGetCudaDriverVersion, (int *version))
{
    return cuda_driver_version(version);
}

API(nvmlSystemGetCudaDriverVersion_v2, (int *version))
{
    return cuda_driver_version(version);
}

API(nvmlSystemGetProcessName, (unsigned pid, char *out, unsigned length))
{
    char path[64], name[256] = "";
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return NVML_ERROR_NOT_FOUND;
    }
    char *line = fgets(name, sizeof(name), file);
    fclose(file);
    name[strcspn(name, "\n")] = '\0';
    return line ? give_text(out, length, name) : NVML_ERROR_NOT_FOUND;
}

API(nvmlSystemGetConfComputeState, (nvmlConfComputeSystemState_t * state))
{
    if (!state) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *state = (nvmlConfComputeSystemState_t){0};
    return is_initialized() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t device_count(unsigned *count)
{
    return is_initialized() ? give_number(count, (unsigned)sim_settings.devices)
                            : NVML_ERROR_UNINITIALIZED;
}

API(nvmlDeviceGetCount, (unsigned *count))
{
    return device_count(count);
}

API(nvmlDeviceGetCount_v2, (unsigned *count))
{
    return device_count(count);
}

static nvmlReturn_t handle_by_index(unsigned index, nvmlDevice_t *handle)
{
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!handle || index >= sim_settings.devices) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *handle = &handles[index];
    return NVML_SUCCESS;
}

API(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *handle))
{
    return handle_by_index(index, handle);
}

API(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *handle))
{
    return handle_by_index(index, handle);
}

/* The driver double gives its devices these identities (device.c there); a test compares them. */
static void uuid_text(int device, char out[48])
{
    unsigned char bytes[16];
    memcpy(bytes, "simgpu-device-0", sizeof(bytes));
    bytes[14] = (unsigned char)('a' + device);
    bytes[6] = 0x40;
    bytes[8] = 0x80;
    char *at = out + sprintf(out, "GPU-");
    for (int i = 0; i < 16; i++) {
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
    }
}

static unsigned pci_bus(int device)
{
    return (unsigned)device + 1;
}

API(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *handle))
{
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    for (int i = 0; uuid && handle && i < (int)sim_settings.devices; i++) {
        char text[48];
        uuid_text(i, text);
        if (strcmp(text, uuid) == 0) {
            *handle = &handles[i];
            return NVML_SUCCESS;
        }
    }
    return uuid && handle ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t handle_by_pci(const char *id, nvmlDevice_t *handle)
{
    unsigned domain = 0, bus = 0, slot = 0;
    if (!is_initialized()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!id || !handle ||
        (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
         sscanf(id, "%x:%x", &bus, &slot) != 2)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < (int)sim_settings.devices; i++) {
        if (domain == 0 && slot == 0 && bus == pci_bus(i)) {
            *handle = &handles[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetHandleByPciBusId, (const char *id, nvmlDevice_t *handle))
{
    return handle_by_pci(id, handle);
}

API(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, nvmlDevice_t *handle))
{
    return handle_by_pci(id, handle);
}

API(nvmlDeviceGetIndex, (nvmlDevice_t handle, unsigned *index))
{
    ENTER_DEVICE(handle)
    return give_number(index, (unsigned)device);
}

API(nvmlDeviceGetMinorNumber, (nvmlDevice_t handle, unsigned *number))
{
    ENTER_DEVICE(handle)
    return give_number(number, (unsigned)device);
}

API(nvmlDeviceGetName, (nvmlDevice_t handle, char *out, unsigned length))
{
    ENTER_DEVICE(handle)
    return give_text(out, length, sim_settings.name);
}

API(nvmlDeviceGetUUID, (nvmlDevice_t handle, char *out, unsigned length))
{
    ENTER_DEVICE(handle)
    char text[48];
    uuid_text(device, text);
    return give_text(out, length, text);
}

static nvmlReturn_t pci_info(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    ENTER_DEVICE(handle)
    if (!info) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *info = (nvmlPciInfo_t){.bus = pci_bus(device)};
    snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "0000:%02X:00.0", info->bus & 0xFF);
    snprintf(info->busId, sizeof(info->busId), "00000000:%02X:00.0", info->bus & 0xFF);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetPciInfo, (nvmlDevice_t handle, nvmlPciInfo_v2_t *info))
{
    nvmlPciInfo_t full;
    nvmlReturn_t result = info ? pci_info(handle, &full) : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *info = (nvmlPciInfo_v2_t){.bus = full.bus};
        memcpy(info->busId, full.busIdLegacy, sizeof(info->busId));
    }
    return result;
}

API(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t handle, nvmlPciInfo_v2_t *info))
{
    return nvmlDeviceGetPciInfo(handle, info);
}

API(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t handle, nvmlPciInfo_t *info))
{
    return pci_info(handle, info);
}

API(nvmlDeviceGetPciInfoExt, (nvmlDevice_t handle, nvmlPciInfoExt_v1_t *info))
{
    nvmlPciInfo_t full;
    if (!info || info->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1)) {
        return info ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlReturn_t result = pci_info(handle, &full);
    if (result == NVML_SUCCESS) {
        /* A display controller, 3D. */
        *info = (nvmlPciInfoExt_v1_t){
            .version = info->version, .bus = full.bus, .baseClass = 3, .subClass = 2};
        memcpy(info->busId, full.busId, sizeof(info->busId));
    }
    return result;
}

static nvmlMemory_t memory_of(int device)
{
    nvmlMemory_t memory = {.total = sim_settings.memory_bytes, .used = usage_bytes(device)};
    memory.free = memory.used < memory.total ? memory.total - memory.used : 0;
    return memory;
}

API(nvmlDeviceGetMemoryInfo, (nvmlDevice_t handle, nvmlMemory_t *memory))
{
    ENTER_DEVICE(handle)
    if (!memory) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *memory = memory_of(device);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t handle, nvmlMemory_v2_t *memory))
{
    ENTER_DEVICE(handle)
    if (!memory) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    nvmlMemory_t plain = memory_of(device);
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

#define MAX_PROCESSES 256

/* Documented for all versions: *count is the capacity on entry and the number on return. If the
 * capacity is too small: NVML_ERROR_INSUFFICIENT_SIZE, and nothing is filled in. */
static nvmlReturn_t list_processes(int device, unsigned *count, uint32_t pids[MAX_PROCESSES],
                                   uint64_t bytes[MAX_PROCESSES], const void *out)
{
    if (!count || (*count > 0 && !out)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned room = *count;
    *count = usage_processes(device, MAX_PROCESSES, pids, bytes);
    *count = *count < MAX_PROCESSES ? *count : MAX_PROCESSES;
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API(nvmlDeviceGetComputeRunningProcesses,
    (nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v1_t *out))
{
    ENTER_DEVICE(handle)
    uint32_t pids[MAX_PROCESSES];
    uint64_t bytes[MAX_PROCESSES];
    nvmlReturn_t result = list_processes(device, count, pids, bytes, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++) {
        out[i] = (nvmlProcessInfo_v1_t){pids[i], bytes[i]};
    }
    return result;
}

static nvmlReturn_t processes(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *out)
{
    ENTER_DEVICE(handle)
    uint32_t pids[MAX_PROCESSES];
    uint64_t bytes[MAX_PROCESSES];
    nvmlReturn_t result = list_processes(device, count, pids, bytes, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++) {
        out[i] = (nvmlProcessInfo_v2_t){pids[i], bytes[i], NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    }
    return result;
}

API(nvmlDeviceGetComputeRunningProcesses_v2,
    (nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *out))
{
    return processes(handle, count, out);
}

API(nvmlDeviceGetComputeRunningProcesses_v3,
    (nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *out))
{
    return processes(handle, count, out);
}

API(nvmlDeviceGetGraphicsRunningProcesses_v3,
    (nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *out))
{
    ENTER_DEVICE(handle)
    (void)out;
    return give_number(count, 0);
}

API(nvmlDeviceGetUtilizationRates, (nvmlDevice_t handle, nvmlUtilization_t *rates))
{
    ENTER_DEVICE(handle)
    if (!rates) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlMemory_t memory = memory_of(device);
    *rates = (nvmlUtilization_t){.gpu = memory.used ? 50 : 0, .memory = memory.used ? 25 : 0};
    return NVML_SUCCESS;
}

/* Plausible figures of an idle board, in the documented units. */
#define IDLE_CELSIUS     40
#define IDLE_MILLIWATTS  30000
#define LIMIT_MILLIWATTS 450000
#define CLOCK_MHZ        2520

API(nvmlDeviceGetTemperature, (nvmlDevice_t handle, int sensor, unsigned *celsius))
{
    ENTER_DEVICE(handle)
    return sensor == NVML_TEMPERATURE_GPU ? give_number(celsius, IDLE_CELSIUS)
                                          : NVML_ERROR_INVALID_ARGUMENT;
}

API(nvmlDeviceGetTemperatureV, (nvmlDevice_t handle, nvmlTemperature_v1_t *temperature))
{
    ENTER_DEVICE(handle)
    if (!temperature || temperature->version != NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)) {
        return temperature ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    }
    temperature->temperature = IDLE_CELSIUS;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetPowerUsage, (nvmlDevice_t handle, unsigned *milliwatts))
{
    ENTER_DEVICE(handle)
    return give_number(milliwatts, IDLE_MILLIWATTS);
}

API(nvmlDeviceGetPowerManagementLimit, (nvmlDevice_t handle, unsigned *milliwatts))
{
    ENTER_DEVICE(handle)
    return give_number(milliwatts, LIMIT_MILLIWATTS);
}

API(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t handle, unsigned *milliwatts))
{
    ENTER_DEVICE(handle)
    return give_number(milliwatts, LIMIT_MILLIWATTS);
}

API(nvmlDeviceGetClockInfo, (nvmlDevice_t handle, int clock, unsigned *mhz))
{
    ENTER_DEVICE(handle)
    return clock >= 0 && clock < NVML_CLOCK_COUNT ? give_number(mhz, CLOCK_MHZ)
                                                  : NVML_ERROR_INVALID_ARGUMENT;
}

API(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t handle, int clock, unsigned *mhz))
{
    ENTER_DEVICE(handle)
    return clock >= 0 && clock < NVML_CLOCK_COUNT ? give_number(mhz, CLOCK_MHZ)
                                                  : NVML_ERROR_INVALID_ARGUMENT;
}

API(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t handle, int *major, int *minor))
{
    ENTER_DEVICE(handle)
    nvmlReturn_t result = give_number((unsigned *)major, (unsigned)sim_settings.capability_major);
    return result == NVML_SUCCESS
               ? give_number((unsigned *)minor, (unsigned)sim_settings.capability_minor)
               : result;
}

API(nvmlDeviceGetP2PStatus, (nvmlDevice_t handle, nvmlDevice_t peer, int capability, int *status))
{
    ENTER_DEVICE(handle)
    if (index_of(peer) < 0 || !status || capability < 0 ||
        capability >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    /* Peers access each other over PCIe: the board has no NVLink. */
    int reachable =
        sim_settings.peers && index_of(peer) != device && capability != NVML_P2P_CAPS_INDEX_NVLINK;
    *status = reachable ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetFieldValues, (nvmlDevice_t handle, int count, nvmlFieldValue_t *values))
{
    ENTER_DEVICE(handle)
    if (!values || count < 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < count; i++) {
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

#define PCIE_GENERATION 4
#define PCIE_WIDTH      16
#define PCIE_MEGABITS   16000

API(nvmlDeviceGetCurrPcieLinkGeneration, (nvmlDevice_t handle, unsigned *generation))
{
    ENTER_DEVICE(handle)
    return give_number(generation, PCIE_GENERATION);
}

API(nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t handle, unsigned *lanes))
{
    ENTER_DEVICE(handle)
    return give_number(lanes, PCIE_WIDTH);
}

API(nvmlDeviceGetPcieLinkMaxSpeed, (nvmlDevice_t handle, unsigned *megabits))
{
    ENTER_DEVICE(handle)
    return give_number(megabits, PCIE_MEGABITS);
}

API(nvmlDeviceGetComputeMode, (nvmlDevice_t handle, unsigned *mode))
{
    ENTER_DEVICE(handle)
    return give_number(mode, 0);
}

API(nvmlDeviceGetPersistenceMode, (nvmlDevice_t handle, unsigned *enabled))
{
    ENTER_DEVICE(handle)
    return give_number(enabled, 1);
}

/* Absent on this board: the answer is always the same, so the other arguments are not declared. */
#define ABSENT(name)                                                \
    API(name, (nvmlDevice_t handle))                                \
    {                                                               \
        return !is_initialized()      ? NVML_ERROR_UNINITIALIZED    \
               : index_of(handle) < 0 ? NVML_ERROR_INVALID_ARGUMENT \
                                      : NVML_ERROR_NOT_SUPPORTED;   \
    }

ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetNvLinkCapability)
ABSENT(nvmlDeviceGetNvLinkVersion)
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ABSENT(nvmlDeviceGetGpuFabricInfo)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
ABSENT(nvmlDeviceGetPlatformInfo)
ABSENT(nvmlDeviceGetMigMode)
ABSENT(nvmlDeviceGetFanSpeed)
ABSENT(nvmlDeviceGetBAR1MemoryInfo)
ABSENT(nvmlDeviceGetCpuAffinity)
ABSENT(nvmlDeviceGetEccMode)
ABSENT(nvmlDeviceGetPcieThroughput)
ABSENT(nvmlDeviceGetPerformanceState)
ABSENT(nvmlDeviceGetProcessUtilization)
ABSENT(nvmlDeviceGetTotalEnergyConsumption)
