/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML double together with the driver double: the same devices, memory and processes. */
#include <criterion/criterion.h>
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../simgpu.h"
#include "../nvml_abi.h"

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t, unsigned *);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned *,
                                                     nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned, int *);
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t, nvmlDevice_t, int, int *);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *);

#define OK(call)     cr_assert_eq((call), NVML_SUCCESS, "%s", #call)
#define DRIVER(call) cr_assert_eq((call), CUDA_SUCCESS, "%s", #call)
#define MIB          ((size_t)1 << 20)

static nvmlDevice_t device(unsigned index)
{
    nvmlDevice_t handle = NULL;
    OK(nvmlDeviceGetHandleByIndex_v2(index, &handle));
    return handle;
}

static CUcontext context_on(int ordinal)
{
    CUcontext context = NULL;
    CUdevice handle;
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&handle, ordinal));
    DRIVER(cuDevicePrimaryCtxRetain(&context, handle));
    DRIVER(cuCtxSetCurrent(context));
    return context;
}

Test(nvml, must_be_initialized)
{
    unsigned count = 0;
    cr_assert_eq(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    OK(nvmlInit_v2());
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetCount_v2(&count));
    cr_assert_eq(count, 2);
    OK(nvmlShutdown());
    OK(nvmlDeviceGetCount_v2(&count));
    OK(nvmlShutdown());
    cr_assert_eq(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    cr_assert_eq(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

Test(nvml, devices_are_the_drivers)
{
    OK(nvmlInit_v2());
    DRIVER(cuInit(0));
    for (unsigned i = 0; i < 2; i++) {
        char pci[32], text[96], name[96], driver_name[96];
        CUuuid uuid;
        unsigned index = 99;
        nvmlDevice_t handle = NULL;
        DRIVER(cuDeviceGetPCIBusId(pci, sizeof(pci), (CUdevice)i));
        OK(nvmlDeviceGetHandleByPciBusId_v2(pci, &handle));
        OK(nvmlDeviceGetIndex(handle, &index));
        cr_assert_eq(index, i);
        OK(nvmlDeviceGetUUID(handle, text, sizeof(text)));
        DRIVER(cuDeviceGetUuid_v2(&uuid, (CUdevice)i));
        char expected[96] = "GPU-";
        for (int b = 0; b < 16; b++) {
            sprintf(expected + strlen(expected), "%s%02x",
                    b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", (unsigned char)uuid.bytes[b]);
        }
        cr_assert_str_eq(text, expected);
        OK(nvmlDeviceGetHandleByUUID(text, &handle));
        cr_assert_eq(handle, device(i));
        OK(nvmlDeviceGetName(handle, name, sizeof(name)));
        DRIVER(cuDeviceGetName(driver_name, sizeof(driver_name), (CUdevice)i));
        cr_assert_str_eq(name, driver_name);
        cr_assert_eq(nvmlDeviceGetName(handle, name, 3), NVML_ERROR_INSUFFICIENT_SIZE);
    }
    nvmlDevice_t none = NULL;
    cr_assert_eq(nvmlDeviceGetHandleByIndex_v2(2, &none), NVML_ERROR_INVALID_ARGUMENT);
    cr_assert_eq(nvmlDeviceGetHandleByUUID("GPU-none", &none), NVML_ERROR_NOT_FOUND);
    cr_assert_eq(nvmlDeviceGetHandleByPciBusId_v2("0000:7F:00.0", &none), NVML_ERROR_NOT_FOUND);
}

Test(nvml, memory_is_what_the_driver_took)
{
    nvmlMemory_t memory;
    nvmlMemory_v2_t full = {.version = 0x02000028};
    CUdeviceptr pointer = 0;
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetMemoryInfo(device(1), &memory));
    cr_assert_eq(memory.used, 0);
    context_on(1);
    DRIVER(cuMemAlloc(&pointer, 64 * MIB));
    OK(nvmlDeviceGetMemoryInfo(device(1), &memory));
    cr_assert_eq(memory.used, simgpu_used_bytes(1));
    cr_assert_geq(memory.used, 64 * MIB);
    cr_assert_eq(memory.total, (size_t)24 << 30);
    cr_assert_eq(memory.free, memory.total - memory.used);
    OK(nvmlDeviceGetMemoryInfo_v2(device(1), &full));
    cr_assert_eq(full.used + full.reserved, memory.used);
    full.version = 0x01000028;
    cr_assert_eq(nvmlDeviceGetMemoryInfo_v2(device(1), &full),
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    OK(nvmlDeviceGetMemoryInfo(device(0), &memory));
    cr_assert_eq(memory.used, 0);
}

Test(nvml, processes_of_both_layouts)
{
    nvmlProcessInfo_v1_t old[2];
    nvmlProcessInfo_v2_t new[2];
    unsigned count = 2;
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, new));
    cr_assert_eq(count, 0);
    context_on(0);
    count = 2;
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, new));
    cr_assert_eq(count, 1);
    cr_assert_eq(new[0].pid, (unsigned)getpid());
    cr_assert_eq(new[0].usedGpuMemory, simgpu_used_bytes(0));
    cr_assert_eq(new[0].gpuInstanceId, NVML_NO_INSTANCE);
    count = 2;
    OK(nvmlDeviceGetComputeRunningProcesses(device(0), &count, old));
    cr_assert_eq(count, 1);
    cr_assert_eq(old[0].usedGpuMemory, simgpu_used_bytes(0));
    count = 0;
    cr_assert_eq(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, NULL),
                 NVML_ERROR_INSUFFICIENT_SIZE);
    cr_assert_eq(count, 1);
}

Test(nvml, what_the_board_lacks_is_not_supported)
{
    int type = 0, status = -1, version = 0, driver_version = 1;
    OK(nvmlInit_v2());
    cr_assert_eq(nvmlDeviceGetNvLinkRemoteDeviceType(device(0), 0, &type),
                 NVML_ERROR_NOT_SUPPORTED);
    OK(nvmlDeviceGetP2PStatus(device(0), device(1), 0, &status));
    cr_assert_eq(status, NVML_P2P_STATUS_OK);
    OK(nvmlDeviceGetP2PStatus(device(0), device(1), NVML_P2P_CAPS_INDEX_NVLINK, &status));
    cr_assert_eq(status, NVML_P2P_STATUS_NOT_SUPPORTED);
    OK(nvmlSystemGetCudaDriverVersion_v2(&version));
    DRIVER(cuDriverGetVersion(&driver_version));
    cr_assert_eq(version, driver_version);
}

/* In a new process image, so that SIMGPU_SHARED is set before any library is loaded. */
#define IN_NEW_IMAGE "NVML_TEST_CHILD"

static int use_memory_until_told(void)
{
    char byte = 1;
    CUdeviceptr pointer = 0;
    context_on(1);
    DRIVER(cuMemAlloc(&pointer, 128 * MIB));
    return write(STDOUT_FILENO, &byte, 1) == 1 && read(STDIN_FILENO, &byte, 1) == 1 ? 0 : 1;
}

__attribute__((constructor)) static void become_child(void)
{
    if (getenv(IN_NEW_IMAGE)) {
        _exit(use_memory_until_told());
    }
}

Test(nvml, another_process_is_seen_through_the_shared_file)
{
    char path[] = "/tmp/simgpu-nvml-XXXXXX", byte = 0;
    int file = mkstemp(path), in[2], out[2], status = 0;
    cr_assert_geq(file, 0);
    close(file);
    setenv("SIMGPU_SHARED", path, 1);
    cr_assert_eq(pipe(in), 0);
    cr_assert_eq(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        close(in[1]);
        close(out[0]);
        setenv(IN_NEW_IMAGE, "1", 1);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl("/proc/self/exe", "child", (char *)NULL);
        _exit(1);
    }
    close(out[1]);
    cr_assert_eq(read(out[0], &byte, 1), 1);
    nvmlProcessInfo_v2_t process[4];
    nvmlMemory_t memory;
    unsigned count = 4;
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, process));
    cr_assert_eq(count, 1);
    cr_assert_eq(process[0].pid, (unsigned)child);
    cr_assert_geq(process[0].usedGpuMemory, 128 * MIB);
    OK(nvmlDeviceGetMemoryInfo(device(1), &memory));
    cr_assert_eq(memory.used, process[0].usedGpuMemory);
    cr_assert_eq(write(in[1], &byte, 1), 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    OK(nvmlDeviceGetMemoryInfo(device(1), &memory));
    cr_assert_eq(memory.used, 0, "the dead use nothing");
    unlink(path);
}
