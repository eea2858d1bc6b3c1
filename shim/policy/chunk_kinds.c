/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver once whether it makes a kind of chunk. PyTorch first asks for pages that it can
 * share over a fabric, and for others if the driver refuses these. Once one page was made, it takes
 * any later refusal for a lack of memory. A device may claim fabric handles by its attribute and
 * yet have no fabric. */
#include "shim/policy/chunk_kinds.h"

#include "allocator/base/locks/lock.h"
#include "shim/driver/driver.h"

/* More than any program asks for. The answers for further kinds are not kept. */
enum { KINDS = 8 };

struct chunk_kind {
    int device;
    CUmemAllocationType type;
    CUmemAllocationHandleType handle_types;
    unsigned char compression, rdma;
    unsigned short usage;
    CUresult answer;
};

static struct chunk_kind kinds[KINDS] MS_GUARDED_BY(*MS_LOCK(PROXIES));
static unsigned known MS_GUARDED_BY(*MS_LOCK(PROXIES));

static bool same(const struct chunk_kind *one, const struct chunk_kind *other)
{
    return one->device == other->device && one->type == other->type &&
           one->handle_types == other->handle_types && one->compression == other->compression &&
           one->rdma == other->rdma && one->usage == other->usage;
}

static bool find(struct chunk_kind *kind)
{
    bool found = false;
    ms_lock_acquire(MS_LOCK(PROXIES));
    for (unsigned i = 0; i < known && !found; i++) {
        if (same(&kinds[i], kind)) {
            kind->answer = kinds[i].answer;
            found = true;
        }
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return found;
}

static void remember(const struct chunk_kind *kind)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    if (known < KINDS) {
        kinds[known++] = *kind;
    }
    ms_lock_release(MS_LOCK(PROXIES));
}

/* False: there was no room to try it. What the driver does not take back stays charged. */
static bool ask(struct ms_device *device, const CUmemAllocationProp_v1 *prop, CUresult *answer)
{
    CUmemGenericAllocationHandle_v1 chunk = 0;
    if (!ms_device_charge(device, MS_OWNER_APPLICATION, device->granule_bytes, false)) {
        return false;
    }
    *answer = MS_REAL(cuMemCreate)(&chunk, device->granule_bytes, prop, 0);
    if (*answer != CUDA_SUCCESS || MS_REAL(cuMemRelease)(chunk) == CUDA_SUCCESS) {
        ms_device_discharge(device, MS_OWNER_APPLICATION, device->granule_bytes);
    }
    return *answer != CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ms_chunk_kind_answer(struct ms_device *device, const CUmemAllocationProp_v1 *prop)
{
    struct chunk_kind kind = {.device = device->ordinal,
                              .type = prop->type,
                              .handle_types = prop->requestedHandleTypes,
                              .compression = prop->allocFlags.compressionType,
                              .rdma = prop->allocFlags.gpuDirectRDMACapable,
                              .usage = prop->allocFlags.usage};
    if (find(&kind)) {
        return kind.answer;
    }
    if (!ask(device, prop, &kind.answer)) {
        return CUDA_SUCCESS;
    }
    remember(&kind);
    return kind.answer;
}
