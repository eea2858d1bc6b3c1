/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by name, version and flavour; versions; devices; what works before cuInit. */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static void *find(const char *name, int version, cuuint64_t flags,
                  CUdriverProcAddressQueryResult wanted)
{
    CUdriverProcAddressQueryResult result = (CUdriverProcAddressQueryResult)-1;
    void *function = &result;
    OK(cuGetProcAddress(name, &function, version, flags, &result));
    cr_assert_eq(result, wanted, "%s at %d with %llu: %d", name, version, (unsigned long long)flags,
                 (int)result);
    return function;
}

static void *found(const char *name, int version, cuuint64_t flags)
{
    return find(name, version, flags, CU_GET_PROC_ADDRESS_SUCCESS);
}

static void *exported(const char *symbol)
{
    void *address = dlsym(RTLD_DEFAULT, symbol);
    cr_assert_not_null(address, "%s", symbol);
    return address;
}

#define LEGACY     CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

/* The versions are those of cudaTypedefs.h. */
Test(names, the_version_asked_for_decides_the_abi)
{
    cr_assert_eq(found("cuMemAlloc", 3020, 0), exported("cuMemAlloc_v2"));
    cr_assert_eq(found("cuMemAlloc", 13000, 0), exported("cuMemAlloc_v2"));
    cr_assert_eq(found("cuStreamBeginCapture", 10000, 0), exported("cuStreamBeginCapture"));
    cr_assert_eq(found("cuStreamBeginCapture", 10010, 0), exported("cuStreamBeginCapture_v2"));
    cr_assert_eq(found("cuStreamGetCaptureInfo", 10010, 0), exported("cuStreamGetCaptureInfo"));
    cr_assert_eq(found("cuStreamGetCaptureInfo", 12029, 0), exported("cuStreamGetCaptureInfo_v2"));
    cr_assert_eq(found("cuStreamGetCaptureInfo", 12030, 0), exported("cuStreamGetCaptureInfo_v3"));
    cr_assert_eq(found("cuGetProcAddress", 11030, 0), exported("cuGetProcAddress"));
    cr_assert_eq(found("cuGetProcAddress", 12000, 0), exported("cuGetProcAddress_v2"));
    cr_assert_null(find("cuMemCreate", 10010, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    cr_assert_eq(found("cuMemCreate", 10020, 0), exported("cuMemCreate"));
}

Test(names, the_flavour_asked_for_decides_the_stream)
{
    cr_assert_eq(found("cuMemcpyHtoD", 12000, LEGACY), exported("cuMemcpyHtoD_v2"));
    cr_assert_eq(found("cuMemcpyHtoD", 12000, PER_THREAD), exported("cuMemcpyHtoD_v2_ptds"));
    cr_assert_eq(found("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_DEFAULT),
                 exported("cuMemcpyHtoD_v2"));
    cr_assert_eq(found("cuMemcpyHtoD", 6000, PER_THREAD), exported("cuMemcpyHtoD_v2"));
    cr_assert_eq(found("cuLaunchKernel", 7000, PER_THREAD), exported("cuLaunchKernel_ptsz"));
    cr_assert_eq(found("cuMemAlloc", 12000, PER_THREAD), exported("cuMemAlloc_v2"));
}

Test(names, unknown_names_and_versions)
{
    void *function = &function;
    cr_assert_null(find("cuNoSuchThing", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    cr_assert_null(find("cuMemAlloc_v2", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    OK(cuGetProcAddress("cuNoSuchThing", &function, 12000, 0, NULL));
    cr_assert_null(function);
    REFUSED(cuGetProcAddress("cuInit", &function, 99000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuGetProcAddress("cuInit", &function, 12000, 0x100, NULL), CUDA_ERROR_INVALID_VALUE);
    const void *table;
    CUuuid id = {{0}};
    REFUSED(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

Test(names, before_initialisation)
{
    int version, count;
    const char *text;
    OK(cuDriverGetVersion(&version));
    cr_assert_eq(version, 13020);
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    cr_assert_str_eq(text, "out of memory");
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    cr_assert_str_eq(text, "CUDA_ERROR_OUT_OF_MEMORY");
    REFUSED(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    cr_assert_eq(count, 2);
}

Test(names, nothing_works_without_a_context)
{
    CUdeviceptr block;
    CUstream stream;
    size_t free, total;
    OK(cuInit(0));
    REFUSED(cuMemAlloc(&block, 1), CUDA_ERROR_INVALID_CONTEXT);
    REFUSED(cuMemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    REFUSED(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    REFUSED(cuStreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

Test(names, devices)
{
    CUdevice device;
    CUuuid first, second;
    char name[100], bus[20];
    int major, minor, vmm, multicast;
    size_t bytes;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 1));
    REFUSED(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(name, sizeof name, 1));
    OK(cuDeviceTotalMem(&bytes, 1));
    cr_assert_eq(bytes, 1024 * MIB);
    OK(cuDeviceGetUuid(&first, 0));
    OK(cuDeviceGetUuid(&second, 1));
    cr_assert_neq(memcmp(&first, &second, sizeof first), 0);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    cr_assert_eq(device, 1);
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    cr_assert_eq(major * 10 + minor, 89);
    OK(cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    OK(cuDeviceGetAttribute(&multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    cr_assert_eq(vmm, 1);
    cr_assert_eq(multicast, 0);
}

/* JAX looks for them before it asks the driver. */
Test(names, the_files_of_the_devices_that_there_are_can_be_seen)
{
    struct stat found;
    cr_assert_eq(stat("/dev/nvidiactl", &found), 0);
    cr_assert(S_ISCHR(found.st_mode));
    cr_assert_eq(stat("/dev/nvidia1", &found), 0);
    cr_assert_eq(access("/dev/nvidia0", F_OK), 0);
    cr_assert_eq(stat("/dev/nvidia2", &found), -1);
    cr_assert_eq(errno, ENOENT);
    cr_assert_eq(access("/dev/nvidia-caps", F_OK), -1);
    cr_assert_eq(stat("/", &found), 0);
    cr_assert(S_ISDIR(found.st_mode));
}
