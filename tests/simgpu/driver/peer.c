/* SPDX-License-Identifier: Apache-2.0 */
/* Access between devices. */
#include "context.h"
#include "device.h"
#include "entry.h"

static bool reaches(const struct sim_device *device, const struct sim_device *peer)
{
    return sim_settings.peers && device != peer;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    const struct sim_device *device = sim_device_of(dev), *peer = sim_device_of(peerDev);
    if (!device || !peer) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!canAccessPeer) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *canAccessPeer = reaches(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    SIM_ENTER(cuCtxEnablePeerAccess);
    SIM_CURRENT(context);
    if (Flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_context_check(peerContext) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* A device has no peer access to itself (seen: an H200, driver 580). */
    if (!reaches(context->device, peerContext->device)) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    uint64_t bit = 1ull << peerContext->device->index;
    if (context->peers & bit) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    context->peers |= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    SIM_ENTER(cuCtxDisablePeerAccess);
    SIM_CURRENT(context);
    if (sim_context_check(peerContext) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint64_t bit = 1ull << peerContext->device->index;
    if (!(context->peers & bit)) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    context->peers &= ~bit;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice)
{
    SIM_ENTER(cuDeviceGetP2PAttribute);
    const struct sim_device *from = sim_device_of(srcDevice), *to = sim_device_of(dstDevice);
    if (!from || !to || from == to) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = reaches(from, to);
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return (int)attrib > 0 && (int)attrib < 16 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
}
