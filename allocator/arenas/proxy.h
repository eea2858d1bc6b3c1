/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies: the pages of a framework that maps memory by itself (PyTorch's expandable segments).
 *
 * A proxy stands for one chunk that the framework asked the driver to create. Behind it stands one
 * chunk of the same size while memory is ample; several of a granule each, or none, when it is
 * short. The framework maps it at addresses that it reserved itself, and reports tensors there
 * before it hands anything out; so an unbacked part is backed when a tensor is allocated on it
 * (arena.h), and its idle parts can be taken back. Everything that lies in one reservation of the
 * framework's is one arena.
 *
 * Thread-safe. May block for the device, so no lock of the caller's that a device callback could
 * want may be held. Statuses as in pool.h. */
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
    ms_handle_t chunk; /* the one chunk behind all of it; 0 where it is split or not backed */
    bool pinned;
};

/* A proxy of `bytes` (a multiple of the pool's granule), mapped nowhere, and fresh (see
 * ms_proxy_request_over). MS_ERR_NO_MEMORY where a framework that uses all of it, and of its other
 * fresh pages, would run out: the bytes are more than the budget has free and what could be
 * reclaimed together, or the obligation to back them cannot be met even with host memory.
 * may_wait: for queued work whose memory would help. properties: handed to chunk_create when one
 * chunk is made for all of it; owned by the caller, for as long as the proxy lives. */
ms_status_t ms_proxy_create(ms_pool_t *pool, uint64_t bytes, const void *properties, bool may_wait,
                            ms_proxy_t **out);

/* The framework has reserved these addresses, both on granules: its next page may go there. Where
 * nobody says so, a reservation begins to be one with its first page. */
void ms_proxy_reserved(ms_pool_t *pool, ms_addr_t base, uint64_t reserved_bytes);

/* The framework maps it at addr, inside its reservation [base, base + reserved_bytes), both on
 * granules. What backs it is mapped there now; it is accessible after ms_proxy_access. A proxy can
 * be mapped once at a time: MS_ERR_INVALID otherwise. */
ms_status_t ms_proxy_map(ms_pool_t *pool, ms_proxy_t *proxy, ms_addr_t addr, ms_addr_t base,
                         uint64_t reserved_bytes);

/* The framework gives access to [addr, addr + bytes), all of it mapped proxies: backed parts get it
 * now (ops->set_access), others when they are backed. May be called again, when peers change. */
ms_status_t ms_proxy_access(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* The framework unmaps whole neighbouring proxies, having seen all work on them complete. Tensors
 * in them that were not reported free are the caller's to bury (ms_arenas_block_gone).
 * MS_ERR_NOT_OURS: no proxy begins at addr; MS_ERR_INVALID: the range ends inside one. On failure
 * of the device all stays mapped. */
ms_status_t ms_proxy_unmap(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* References: created with one; each ms_proxy_retain adds one. The proxy ends when the last is
 * released and it is mapped nowhere; its chunks go back to pool or device then. */
void ms_proxy_retain(ms_pool_t *pool, ms_proxy_t *proxy);
void ms_proxy_release(ms_pool_t *pool, ms_proxy_t *proxy);

/* A page is fresh until the thread that made it reports its next tensor, or a tensor touches it: it
 * belongs to a request under way, and no part of it is a hole. The calling thread's request is over
 * without a tensor, refused. */
void ms_proxy_request_over(ms_pool_t *pool);

/* The reservation is given up: nothing is mapped in it any more. */
void ms_proxy_reservation_gone(ms_pool_t *pool, ms_addr_t base);

/* The proxy that is mapped around addr. MS_ERR_NOT_OURS where there is none. */
ms_status_t ms_proxy_at(ms_pool_t *pool, ms_addr_t addr, struct ms_proxy_info *out);
void ms_proxy_info(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

/* Its identity leaves the process (export, registration, multicast): nothing of it is taken any
 * more. Where it is one chunk, out->chunk is that; where it is not, it is pinned as it is, all of
 * it backed where that is possible, and out->chunk is 0: the caller answers as the driver would. */
ms_status_t ms_proxy_pin(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

/* The same for who needs one chunk: where it is in parts and mapped, one new chunk takes their
 * place, with the same contents at the same addresses. MS_ERR_NO_MEMORY: there is no room for both
 * at once, or the device does not stand still, and it is as it was. */
ms_status_t ms_proxy_show(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out);

#endif
