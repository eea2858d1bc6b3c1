/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's public interface that this double implements: types and constants as in
 * NVIDIA's documentation ("NVML API Reference Guide") and its nvidia-ml-py package (pynvml.py).
 * This project's CUDA headers do not include NVML's header. */
#ifndef SIMGPU_NVML_ABI_H
#define SIMGPU_NVML_ABI_H

#include <stdint.h>

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

#define NVML_INIT_FLAG_NO_GPUS 1u

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

/* A versioned structure's tag: its size, and its version in the top byte. */
#define NVML_STRUCT_VERSION(type, number) ((unsigned)(sizeof(type) | ((unsigned)(number) << 24)))

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device;
    unsigned pciDeviceId; /* device in the high half, vendor in the low */
    unsigned pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId;
    unsigned pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory; /* bytes */
} nvmlProcessInfo_v1_t;

/* Versions 2 and 3 of nvmlDeviceGetComputeRunningProcesses fill this one. */
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory; /* bytes */
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;
#define NVML_NO_INSTANCE 0xFFFFFFFFu

typedef struct {
    unsigned gpu, memory; /* percent of the last sample period */
} nvmlUtilization_t;

typedef struct {
    unsigned version;
    int sensorType, temperature;
} nvmlTemperature_v1_t;

typedef struct {
    uint32_t fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    int valueType;
    int nvmlReturn;
    union {
        double dVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned environment, ccFeature, devToolsMode;
} nvmlConfComputeSystemState_t;

enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };
enum { NVML_P2P_CAPS_INDEX_NVLINK = 2, NVML_P2P_CAPS_INDEX_UNKNOWN = 5 };
enum { NVML_CLOCK_COUNT = 4, NVML_TEMPERATURE_GPU = 0 };

#endif
