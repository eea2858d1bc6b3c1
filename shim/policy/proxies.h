/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's pages. What its expandable segments create with cuMemCreate gets a handle of ours, so
 * that parts of a page can be taken while nothing lives there (allocator/arenas/proxy.h). These
 * functions answer the driver's calls about pages. To every caller a page looks like one chunk with
 * the properties that were asked for.
 *
 * Whatever shows a page's identity to others pins it: nothing of it is taken any more. Thread-safe;
 * no pool or driver call is made under their lock. Results are the driver's. */
#ifndef MEMSHIM_SHIM_POLICY_PROXIES_H
#define MEMSHIM_SHIM_POLICY_PROXIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/device/addresses/reservations.h"
#include "shim/device/device.h"

/* The device whose pool will back a page with these properties, created by the present call; null
 * if the driver is to create it. */
struct ms_device *ms_proxies_home(const CUmemAllocationProp_v1 *prop, size_t size,
                                  unsigned long long flags);

/* Notes that the application reserved addresses while this device was current: a reservation of
 * PyTorch's will hold its pages. The second function notes that the application freed it. */
void ms_proxies_reserved(const struct ms_device *device, CUdeviceptr_v2 addr, uint64_t bytes);
void ms_proxies_reservation_gone(const struct ms_reservation *reservation);

/* From now on pages stand for memory of cudaMalloc, because memshim switched expandable segments
 * on. Whoever makes one then gets a current context, as from cudaMalloc: PyTorch warns where a
 * thread has none at its first product of matrices. */
void ms_proxies_replace_malloc(void);

/* Whether they do. Then a tensor's memory has a name for other processes, as cudaMalloc's has. To
 * every call that tells where an allocation begins, one begins with each page; its name is of all
 * that is mapped from there on without a gap, so that it covers any tensor that begins in the page.
 */
bool ms_proxies_are_malloc(void);

/* That name, as cuIpcGetMemHandle gives it: the same while the same pages are mapped. They are
 * pinned, and stay while another process has them open. CUDA_ERROR_INVALID_VALUE: no page is
 * accessible at addr; CUDA_ERROR_NOT_SUPPORTED: not all of them can be shared. */
CUresult ms_proxies_name(CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out);

/* The bytes that it is of; 0: no page is accessible there. */
uint64_t ms_proxies_named_bytes(CUdeviceptr_v2 addr);

CUresult ms_proxies_create(struct ms_device *device, CUmemGenericAllocationHandle_v1 *handle,
                           size_t size, const CUmemAllocationProp_v1 *prop);

/* Whether a handle is one of ours. The driver never gives out such a value. */
bool ms_proxies_own(CUmemGenericAllocationHandle_v1 handle);

/* For handles of ours. */
CUresult ms_proxies_release(CUmemGenericAllocationHandle_v1 handle);
CUresult ms_proxies_map(CUdeviceptr_v2 addr, size_t size, size_t offset,
                        CUmemGenericAllocationHandle_v1 handle, unsigned long long flags);
CUresult ms_proxies_properties(CUmemAllocationProp_v1 *prop,
                               CUmemGenericAllocationHandle_v1 handle);

/* Pins the page for the length of one driver call; *chunk gets the driver's handle.
 * CUDA_ERROR_NOT_SUPPORTED if the page is in parts and so has no single handle. */
CUresult ms_proxies_show(CUmemGenericAllocationHandle_v1 handle,
                         CUmemGenericAllocationHandle_v1 *chunk);

/* What pages a range covers. */
enum ms_proxies_cover {
    MS_PROXIES_NONE,  /* no page is mapped in it */
    MS_PROXIES_WHOLE, /* whole neighbouring pages of one device, and nothing else */
    MS_PROXIES_INSIDE /* pages, but cut, with gaps, or beside other mappings */
};

/* For ranges. Each returns what the range covers. Only for WHOLE was the call served, with *result.
 * For access, a part of pages without a gap counts as WHOLE, too. */
enum ms_proxies_cover ms_proxies_unmap(CUdeviceptr_v2 addr, size_t size, CUresult *result);
enum ms_proxies_cover ms_proxies_access(CUdeviceptr_v2 addr, size_t size,
                                        const CUmemAccessDesc_v1 *desc, size_t count,
                                        CUresult *result);

/* The mapping around addr, as every caller is to see it. */
struct ms_proxy_view {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    CUmemGenericAllocationHandle_v1 handle;
    CUmemAllocationProp_v1 prop;
    bool accessible; /* access was given since it was mapped */
};
bool ms_proxies_at(CUdeviceptr_v2 addr, struct ms_proxy_view *out);

/* Whether any page is mapped in the range. */
bool ms_proxies_in(CUdeviceptr_v2 addr, uint64_t size);

/* Adds a reference to the handle that is mapped around addr; false: no page is. pin: the caller is
 * not PyTorch. If pinning fails, *result has the error and no reference is added. */
bool ms_proxies_retain(CUdeviceptr_v2 addr, bool pin, CUmemGenericAllocationHandle_v1 *handle,
                       CUresult *result);

/* Pins all pages of the range; false: one of them could not be brought back to the device. */
bool ms_proxies_pin(CUdeviceptr_v2 addr, uint64_t size);

#endif
