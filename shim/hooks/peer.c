/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access. The driver applies it to its own allocations of a context; our mappings must be
 * given it. */
#include "shim/hooks/peer.h"

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/driver.h"
#include "shim/hooks/serve.h"

/* The devices to which the process's contexts and memory pools give access now. */
static uint64_t wanted(const struct ms_device *device)
{
    uint64_t mask = atomic_load(&device->pool_peer_mask);
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (!c->dead && ((atomic_load(&c->peers) >> device->ordinal) & 1)) {
            mask |= 1ULL << c->device->ordinal;
        }
    }
    return mask & ~(1ULL << device->ordinal);
}

/* If a pool grows meanwhile, its new mappings get the old or the new mask. Those with the old one
 * get the new one from the refresh, which waits for the growth. The lock is held from the look at
 * what is wanted until the mappings have it, so that no thread puts an older mask over a newer one.
 */
static CUresult apply(struct ms_device *device)
{
    CUresult result = CUDA_SUCCESS;
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(PEERS));
    uint64_t mask = wanted(device);
    uint64_t before = atomic_exchange(&device->access_mask, mask);
    if (mask != before) {
        atomic_fetch_or(&device->withdrawn_mask, before & ~mask);
        result = device->pool ? ms_result_from(ms_pool_refresh_access(device->pool)) : result;
    }
    ms_lock_release(MS_LOCK(PEERS));
    ms_cancel_let(cancellation);
    return result;
}

CUresult ms_peer_pool_access(struct ms_device *device, int other, bool on)
{
    if (!device || other < 0 || other >= MS_DEVICES_MAX) {
        return CUDA_SUCCESS;
    }
    if (on) {
        atomic_fetch_or(&device->pool_peer_mask, 1ULL << other);
    } else {
        atomic_fetch_and(&device->pool_peer_mask, ~(1ULL << other));
    }
    return apply(device);
}

void ms_peers_forget(struct ms_context *context)
{
    uint64_t peers = atomic_exchange(&context->peers, 0);
    for (int d = 0; d < MS_DEVICES_MAX && peers >> d; d++) {
        struct ms_device *device = ((peers >> d) & 1) ? ms_device_get(d) : NULL;
        if (device) {
            (void)apply(device); /* a mapping with too much access does no harm */
        }
    }
}

bool ms_peers_meet(const struct ms_device *one, const struct ms_device *other)
{
    return one == other || (((atomic_load(&one->access_mask) >> other->ordinal) & 1) &&
                            ((atomic_load(&other->access_mask) >> one->ordinal) & 1));
}

CUresult ms_serve_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    CUresult result = MS_REAL(cuCtxEnablePeerAccess)(peerContext, Flags);
    struct ms_context *context = NULL;
    struct ms_context *peer = NULL;
    CUresult known = result == CUDA_SUCCESS ? ms_context_query(&context) : result;
    if (context) {
        known = ms_context_of(peerContext, &peer);
    }
    if (result == CUDA_SUCCESS && known != CUDA_SUCCESS) {
        /* Without access to the pool's mappings, peer access would be of no use. */
        (void)MS_REAL(cuCtxDisablePeerAccess)(peerContext);
        return known;
    }
    if (!peer) {
        return result;
    }
    uint64_t bit = 1ULL << peer->device->ordinal;
    atomic_fetch_or(&context->peers, bit);
    result = apply(peer->device);
    if (result != CUDA_SUCCESS) {
        atomic_fetch_and(&context->peers, ~bit);
        (void)apply(peer->device);
        (void)MS_REAL(cuCtxDisablePeerAccess)(peerContext);
    }
    return result;
}

CUresult ms_serve_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    CUresult result = MS_REAL(cuCtxDisablePeerAccess)(peerContext);
    struct ms_context *context = result == CUDA_SUCCESS ? ms_context_current() : NULL;
    struct ms_context *peer = NULL;
    if (context) {
        (void)ms_context_of(peerContext, &peer);
    }
    if (peer) {
        atomic_fetch_and(&context->peers, ~(1ULL << peer->device->ordinal));
        (void)apply(peer->device); /* a mapping with too much access does no harm */
    }
    return result;
}
