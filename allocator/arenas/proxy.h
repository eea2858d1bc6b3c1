/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies: the pages of a framework that maps memory by itself (PyTorch's expandable segments).
 *
 * A proxy stands for one chunk that the framework asked the driver to create. Behind it stands one
 * chunk of the same size while memory is ample; several of a granule each, or none, when it is
 * short. The framework maps it at addresses that it reserved itself, and reports tensors there
 * before it hands them out. So the pool backs an unbacked part when a tensor is allocated on it
 * (arena.h), and can take idle parts back. All of a framework's reservation is one arena.
 *
 * Thread-safe. May block for the device, so the caller must not hold a lock that a device callback
 * could take. Statuses as in pool.h. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_PROXY_H
#define MEMSHIM_ALLOCATOR_ARENAS_PROXY_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/space/block.h"

typedef struct ms_proxy ms_proxy_t;

struct ms_proxy_info {
    ms_proxy_t *proxy;
    ms_addr_t addr;    /* where it is mapped; 0: nowhere */
    uint64_t bytes;    /* of the whole proxy */
    ms_handle_t chunk; /* the one chunk behind all of it; 0: it is in parts or not fully backed */
    bool pinned;
};

/* Makes a proxy of `bytes` (a multiple of the pool's granule), mapped nowhere, and fresh (see
 * ms_proxy_request_over). MS_ERR_NO_MEMORY: a framework that uses all of it, and of its other fresh
 * pages, would run out. Then the bytes are more than the free budget and reclaimable memory
 * together, or not even host memory can cover the obligation to back them. may_wait: for queued
 * work whose memory would help. properties: passed to chunk_create when one chunk backs all of it;
 * owned by the caller, for as long as the proxy lives. */
ms_status_t ms_proxy_create(ms_pool_t *pool, uint64_t bytes, const void *properties, bool may_wait,
                            ms_proxy_t **out);

/* The framework has reserved these addresses, both on granules: its next page may go there. Without
 * this call, a reservation is known from its first page on. */
void ms_proxy_reserved(ms_pool_t *pool, ms_addr_t base, uint64_t reserved_bytes);

/* The framework maps it at addr, inside its reservation [base, base + reserved_bytes), both on
 * granules. Its chunks are mapped there now; they are accessible after ms_proxy_access.
 * MS_ERR_INVALID: the proxy is mapped already. */
ms_status_t ms_proxy_map(ms_pool_t *pool, ms_proxy_t *proxy, ms_addr_t addr, ms_addr_t base,
                         uint64_t reserved_bytes);

/* The framework gives access to [addr, addr + bytes), all of it mapped proxies. Backed parts get it
 * now (ops->set_access), others when they are backed. May be called again when peers change. */
ms_status_t ms_proxy_access(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* The framework unmaps whole neighbouring proxies, and has seen that all work on them is done. The
 * caller ends their tensors whose free was not reported (ms_arenas_block_gone). MS_ERR_NOT_OURS: no
 * proxy begins at addr; MS_ERR_INVALID: the range ends inside one. If the device fails, all stays
 * mapped. */
ms_status_t ms_proxy_unmap(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* The caller, who made the proxy, needs it no more. It ends when it is mapped nowhere, too; its
 * chunks then go back to pool or device. */
void ms_proxy_release(ms_pool_t *pool, ms_proxy_t *proxy);

/* A page is fresh until the thread that made it reports its next tensor, or a tensor touches it: it
 * belongs to a current request, and no part of it is a hole. This call ends the calling thread's
 * request without a tensor: it was refused. */
void ms_proxy_request_over(ms_pool_t *pool);

/* The framework gives the reservation up; nothing is mapped in it any more. */
void ms_proxy_reservation_gone(ms_pool_t *pool, ms_addr_t base);

/* The proxy that is mapped around addr. MS_ERR_NOT_OURS: there is none. */
ms_status_t ms_proxy_at(ms_pool_t *pool, ms_addr_t addr, struct ms_proxy_info *out);
void ms_proxy_info(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

/* Pins the proxy, because its identity leaves the process (export, registration, multicast):
 * nothing of it is taken any more. If one chunk backs it, out->chunk is that. Otherwise it is
 * pinned as it is, backed as far as possible, and out->chunk is 0: the caller answers as the driver
 * would. */
ms_status_t ms_proxy_pin(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

/* Pins the proxy as ms_proxy_pin does, and visits its chunks in the order of addresses: one, or
 * those of its parts. They stay behind it for as long as it lives. visit is called under the growth
 * lock. MS_ERR_NOT_OURS: it is mapped nowhere; MS_ERR_NOT_SUPPORTED: not all of it lies on device
 * chunks. */
ms_status_t ms_proxy_pin_chunks(ms_pool_t *pool, ms_proxy_t *proxy,
                                const struct ms_chunk_visitor *visitor);

/* As ms_proxy_pin, for callers that need one chunk: if the proxy is mapped in parts, one new chunk
 * takes their place, with the same contents at the same addresses. MS_ERR_NO_MEMORY: there is no
 * room for both at once, or the device does not stand still; nothing changed. MS_ERR_NOT_SUPPORTED:
 * somebody has its parts (ms_proxy_pin_chunks), or it is mapped nowhere. */
ms_status_t ms_proxy_show(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

#endif
