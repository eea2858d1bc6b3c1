/* SPDX-License-Identifier: Apache-2.0 */
/* Initialization, versions, error texts, and the look-up of functions by name. */
#include "device.h"
#include "entry.h"
#include "settings.h"

#include <string.h>

struct error_text {
    CUresult code;
    const char *name, *text;
};

/* The texts are the comments on each code in cuda.h, shortened. */
static const struct error_text error_texts[] = {
#define ERROR(code, text) \
    {                     \
        code, #code, text \
    }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool"),
    ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between devices"),
    ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected"),
    ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX was compiled with an unsupported toolchain"),
    ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    ERROR(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported driver mix"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
          "operation would result in a merge of separate captures"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a "
                                     "capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
          "the graph update was not performed because it included changes which violated "
          "constraints specific to instantiated graph update"),
    ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function is not loaded"),
    ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

bool sim_error_text(CUresult error, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof error_texts / sizeof error_texts[0]; i++) {
        if (error_texts[i].code == error) {
            if (name) {
                *name = error_texts[i].name;
            }
            if (text) {
                *text = error_texts[i].text;
            }
            return true;
        }
    }
    return false;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    SIM_ENTER_EARLY(cuGetErrorString);
    *pStr = NULL;
    return sim_error_text(error, NULL, pStr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    SIM_ENTER_EARLY(cuGetErrorName);
    *pStr = NULL;
    return sim_error_text(error, pStr, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuInit(unsigned int Flags)
{
    SIM_ENTER_EARLY(cuInit);
    return Flags == 0 ? sim_initialise() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    SIM_ENTER_EARLY(cuDriverGetVersion);
    if (!driverVersion) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = (int)sim_settings.driver_version;
    return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    SIM_ENTER_EARLY(cuGetExportTable);
    if (ppExportTable) {
        *ppExportTable = NULL;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* The newest ABI of a name in the requested version. With the per-thread flag, its per-thread
 * variant: "If a per-thread version is not found, the API will return the legacy version" (cuda.h,
 * cuGetProcAddress). */
static CUresult find_function(const char *symbol, void **pfn, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult *query)
{
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !pfn || version > (int)sim_settings.driver_version ||
        (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pfn = NULL;
    *query = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const struct sim_function_info *best = NULL;
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        const struct sim_function_info *row = &sim_functions[i];
        if (strcmp(row->base, symbol) != 0 || row->version > (int)sim_settings.driver_version) {
            continue;
        }
        if (*query == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) {
            *query = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        }
        if (row->version > version || (row->per_thread && !per_thread)) {
            continue;
        }
        bool better = !best || (row->per_thread && !best->per_thread) ||
                      (row->per_thread == best->per_thread && row->version > best->version);
        if (better) {
            best = row;
        }
    }
    if (best) {
        *query = CU_GET_PROC_ADDRESS_SUCCESS;
        *pfn = best->address;
    }
    return CUDA_SUCCESS;
}

/* The first ABI can report only by an error that nothing was found. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    SIM_ENTER_EARLY(cuGetProcAddress);
    CUdriverProcAddressQueryResult query;
    CUresult status = find_function(symbol, pfn, cudaVersion, flags, &query);
    if (status == CUDA_SUCCESS && query != CU_GET_PROC_ADDRESS_SUCCESS) {
        return CUDA_ERROR_NOT_FOUND;
    }
    return status;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    SIM_ENTER_EARLY(cuGetProcAddress_v2);
    CUdriverProcAddressQueryResult query;
    CUresult status = find_function(symbol, pfn, cudaVersion, flags, &query);
    if (status == CUDA_SUCCESS && symbolStatus) {
        *symbolStatus = query;
    }
    return status;
}

CUresult cuProfilerStart(void)
{
    SIM_ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    SIM_ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}
