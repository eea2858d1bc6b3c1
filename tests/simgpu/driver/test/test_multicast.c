/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast objects: teams, what is bound, and how long it lives. */
#include "check.h"

#define OBJECT (8 * MIB)

static CUmemGenericAllocationHandle object(void)
{
    const CUmulticastObjectProp prop = {
        .numDevices = 2, .size = OBJECT, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle handle;
    size_t granule = 0;
    OK(cuMulticastGetGranularity(&granule, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    cr_assert_eq(OBJECT % granule, 0);
    OK(cuMulticastCreate(&handle, &prop));
    return handle;
}

static CUmemGenericAllocationHandle chunk(int device)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, OBJECT, &prop, 0));
    return handle;
}

Test(multicast, what_is_bound_lives_until_it_is_unbound)
{
    begin();
    CUmemGenericAllocationHandle all = object(), memory = chunk(0);
    OK(cuMulticastAddDevice(all, 0));
    OK(cuMulticastAddDevice(all, 1));
    REFUSED(cuMulticastAddDevice(all, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem(all, 0, memory, 0, OBJECT, 0));
    OK(cuMemRelease(memory));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB + OBJECT);
    REFUSED(cuMulticastUnbind(all, 1, 0, OBJECT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(all, 0, 0, OBJECT));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    OK(cuMemRelease(all));
    cr_assert_eq(simgpu_live("chunk"), 0);
}

Test(multicast, an_object_that_ends_unbinds_all)
{
    begin();
    CUmemGenericAllocationHandle all = object();
    OK(cuMulticastAddDevice(all, 0));
    OK(cuMulticastAddDevice(all, 1));
    for (int d = 0; d < 2; d++) {
        CUmemGenericAllocationHandle memory = chunk(d);
        OK(cuMulticastBindMem(all, 0, memory, 0, OBJECT, 0));
        OK(cuMemRelease(memory));
    }
    cr_assert_eq(simgpu_live("chunk"), 3);
    OK(cuMemRelease(all));
    cr_assert_eq(simgpu_live("chunk"), 0);
}

Test(multicast, it_is_mapped_and_not_copied_to)
{
    begin();
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle all = object(), memory = chunk(1);
    CUmemAllocationProp prop;
    CUmemAccessDesc access[2];
    for (int d = 0; d < 2; d++) {
        OK(cuMulticastAddDevice(all, d));
        access[d] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d},
                                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    OK(cuMulticastBindMem(all, 0, memory, 0, OBJECT, 0));
    REFUSED(cuMulticastBindMem(all, 0, memory, 0, OBJECT, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMulticastBindMem(memory, 0, all, 0, OBJECT, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemGetAllocationPropertiesFromHandle(&prop, all), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&address, OBJECT, 0, 0, 0));
    OK(cuMemMap(address, OBJECT, 0, all, 0));
    OK(cuMemSetAccess(address, OBJECT, access, 2));
    REFUSED(cuMemsetD8(address, 1, OBJECT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(all));
    cr_assert_eq(simgpu_live("chunk"), 2);
    OK(cuMemUnmap(address, OBJECT));
    OK(cuMemRelease(memory));
    cr_assert_eq(simgpu_live("chunk"), 0);
}
