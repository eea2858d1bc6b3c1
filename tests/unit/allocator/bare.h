/* SPDX-License-Identifier: Apache-2.0 */
/* A device that keeps nothing but accounts, without limits of its own: for tests of what the pool
 * does on very large devices, and on a host that runs out of memory. Work on it is done at once. */
#ifndef MEMSHIM_TESTS_BARE_H
#define MEMSHIM_TESTS_BARE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/device/device_ops.h"

#define BARE_FIRST_ADDR ((ms_addr_t)1 << 44)

struct bare {
    struct ms_device_ops ops;
    ms_addr_t end_addr;    /* of all that was ever reserved */
    ms_handle_t *mapped;   /* for each granule from the first address on; 0: nothing */
    size_t room;           /* granules that `mapped` has room for */
    uint64_t *chunk_bytes; /* by handle; 0: released */
    bool *on_host;
    size_t chunks, chunk_room;
    uint64_t used_bytes, host_bytes, reserved_bytes, mapped_bytes, fences;
    const char *violation;
};

static inline void bare_wrong(struct bare *bare, const char *what)
{
    bare->violation = bare->violation != NULL ? bare->violation : what;
}

static inline size_t bare_slot(const struct bare *bare, ms_addr_t addr)
{
    return (size_t)((addr - BARE_FIRST_ADDR) / bare->ops.granule_bytes);
}

static inline ms_status_t bare_reserve(void *ctx, uint64_t bytes, uint64_t alignment,
                                       ms_addr_t *out)
{
    struct bare *bare = ctx;
    (void)alignment;
    *out = bare->end_addr;
    bare->end_addr += bytes + bare->ops.granule_bytes;
    bare->reserved_bytes += bytes;
    return MS_OK;
}

static inline ms_status_t bare_unreserve(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct bare *bare = ctx;
    (void)addr;
    bare->reserved_bytes -= bytes;
    return MS_OK;
}

static inline ms_status_t bare_create(void *ctx, uint64_t bytes, enum ms_location location,
                                      const void *properties, ms_handle_t *out)
{
    struct bare *bare = ctx;
    (void)properties;
    bool host = location == MS_LOCATION_HOST;
    if (!host && bytes > bare->ops.total_bytes - bare->used_bytes) {
        return MS_ERR_NO_MEMORY;
    }
    if (bare->chunks == bare->chunk_room) {
        bare->chunk_room = bare->chunk_room == 0 ? 1024 : bare->chunk_room * 2;
        bare->chunk_bytes = realloc(bare->chunk_bytes, bare->chunk_room * sizeof(uint64_t));
        bare->on_host = realloc(bare->on_host, bare->chunk_room * sizeof(bool));
        cr_assert(bare->chunk_bytes != NULL && bare->on_host != NULL);
    }
    bare->chunk_bytes[bare->chunks] = bytes;
    bare->on_host[bare->chunks] = host;
    bare->chunks++;
    *(host ? &bare->host_bytes : &bare->used_bytes) += bytes;
    *out = bare->chunks;
    return MS_OK;
}

static inline ms_status_t bare_release(void *ctx, ms_handle_t chunk)
{
    struct bare *bare = ctx;
    uint64_t bytes = bare->chunk_bytes[chunk - 1];
    if (bytes == 0) {
        bare_wrong(bare, "a chunk is released twice");
    }
    *(bare->on_host[chunk - 1] ? &bare->host_bytes : &bare->used_bytes) -= bytes;
    bare->chunk_bytes[chunk - 1] = 0;
    return MS_OK;
}

static inline ms_status_t bare_map(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    struct bare *bare = ctx;
    size_t first = bare_slot(bare, addr);
    size_t end = bare_slot(bare, addr + bytes);
    if (end > bare->room) {
        size_t room = end * 2;
        bare->mapped = realloc(bare->mapped, room * sizeof(ms_handle_t));
        cr_assert_not_null(bare->mapped);
        memset(&bare->mapped[bare->room], 0, (room - bare->room) * sizeof(ms_handle_t));
        bare->room = room;
    }
    if (bytes != bare->chunk_bytes[chunk - 1]) {
        bare_wrong(bare, "a chunk is not mapped whole");
    }
    for (size_t k = first; k < end; k++) {
        if (bare->mapped[k] != 0) {
            bare_wrong(bare, "two chunks are mapped at one address");
        }
        bare->mapped[k] = chunk;
    }
    bare->mapped_bytes += bytes;
    return MS_OK;
}

static inline ms_status_t bare_unmap(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct bare *bare = ctx;
    for (size_t k = bare_slot(bare, addr); k < bare_slot(bare, addr + bytes); k++) {
        if (k >= bare->room || bare->mapped[k] == 0) {
            bare_wrong(bare, "nothing is mapped where something is unmapped");
        } else {
            bare->mapped[k] = 0;
        }
    }
    bare->mapped_bytes -= bytes;
    return MS_OK;
}

/* Whether something is mapped behind every byte of the range. */
static inline bool bare_backed(const struct bare *bare, ms_addr_t addr, uint64_t bytes)
{
    bool backed = true;
    for (size_t k = bare_slot(bare, addr); k <= bare_slot(bare, addr + bytes - 1); k++) {
        backed = backed && k < bare->room && bare->mapped[k] != 0;
    }
    return backed;
}

static inline ms_status_t bare_access(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct bare *bare = ctx;
    if (!bare_backed(bare, addr, bytes)) {
        bare_wrong(bare, "access is given to what is not mapped");
    }
    return MS_OK;
}

static inline ms_status_t bare_fence_take(void *ctx, ms_stream_t stream, ms_fence_t *out)
{
    struct bare *bare = ctx;
    (void)stream;
    bare->fences++;
    *out = 1;
    return MS_OK;
}

static inline ms_status_t bare_query(void *ctx, ms_fence_t fence)
{
    (void)ctx;
    (void)fence;
    return MS_OK;
}

static inline ms_status_t bare_wait(void *ctx, ms_fence_t fence, uint64_t timeout_ns)
{
    (void)timeout_ns;
    return bare_query(ctx, fence);
}

static inline ms_status_t bare_stream_wait(void *ctx, ms_stream_t stream, ms_fence_t fence)
{
    (void)stream;
    return bare_query(ctx, fence);
}

static inline void bare_fence_release(void *ctx, ms_fence_t fence)
{
    struct bare *bare = ctx;
    (void)fence;
    bare->fences--;
}

static const _Atomic int bare_captures;

static inline struct bare *bare_make(uint64_t granule_bytes, uint64_t total_bytes)
{
    struct bare *bare = calloc(1, sizeof(*bare));
    cr_assert_not_null(bare);
    bare->end_addr = BARE_FIRST_ADDR;
    bare->ops = (struct ms_device_ops){.ctx = bare,
                                       .granule_bytes = granule_bytes,
                                       .total_bytes = total_bytes,
                                       .address_reserve = bare_reserve,
                                       .address_free = bare_unreserve,
                                       .chunk_create = bare_create,
                                       .chunk_release = bare_release,
                                       .map = bare_map,
                                       .set_access = bare_access,
                                       .unmap = bare_unmap,
                                       .fence_take = bare_fence_take,
                                       .fence_query = bare_query,
                                       .fence_wait = bare_wait,
                                       .stream_wait = bare_stream_wait,
                                       .fence_release = bare_fence_release,
                                       .captures = &bare_captures};
    return bare;
}

/* Everything is back, and nothing was done that a device would not do. */
static inline void bare_end(struct bare *bare)
{
    cr_assert_null(bare->violation, "%s", bare->violation);
    cr_assert_eq(bare->used_bytes + bare->host_bytes, 0);
    cr_assert_eq(bare->mapped_bytes + bare->reserved_bytes + bare->fences, 0);
    free(bare->mapped);
    free(bare->chunk_bytes);
    free(bare->on_host);
    free(bare);
}

#endif
