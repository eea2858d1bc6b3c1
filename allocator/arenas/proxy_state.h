/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy, and the changes to it that proxy.c and proxy_map.c share. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_PROXY_STATE_H
#define MEMSHIM_ALLOCATOR_ARENAS_PROXY_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arenas/proxy.h"
#include "allocator/pool_state.h"

struct ms_proxy {
    uint64_t id;
    uint64_t bytes;
    struct ms_segment *segment;   /* where it is mapped; null: nowhere */
    uint64_t slot;                /* its first slot there */
    struct ms_chunk *chunks;      /* while mapped nowhere; chunk->slot counts from its beginning */
    struct ms_proxy *prev, *next; /* all proxies */
    const void *properties;       /* for one chunk that backs all of it */
    bool pinned;
    bool visited;  /* others know its chunks, which stay as they are */
    bool released; /* by the framework */

    /* Of a current request: see ms_proxies_tensor_allocated. State lock. */
    bool fresh;
    pthread_t maker;
    struct ms_proxy *fresh_prev, *fresh_next;
};

static inline uint64_t ms_proxy_slots(const struct ms_pool *pool, const struct ms_proxy *proxy)
{
    return proxy->bytes / pool->granule_bytes;
}

static inline ms_addr_t ms_proxy_addr(const struct ms_pool *pool, const struct ms_proxy *proxy)
{
    return proxy->segment->base + proxy->slot * pool->granule_bytes;
}

static inline uint64_t ms_proxy_chunk_bytes(const struct ms_chunk *chunk)
{
    uint64_t bytes = 0;
    for (; chunk != NULL; chunk = chunk->next) {
        bytes += chunk->bytes;
    }
    return bytes;
}

/* Adds or removes obligations: the unbacked bytes of a proxy that is mapped nowhere. */
void ms_proxy_oblige(struct ms_pool *pool, const struct ms_proxy *proxy, uint64_t more_bytes,
                     uint64_t fewer_bytes) MS_REQUIRES(ms_state_role);

/* Ends the proxy's freshness: its request is over. */
void ms_proxy_fresh_no_more(struct ms_pool *pool, struct ms_proxy *proxy)
    MS_REQUIRES(ms_state_role);

/* Ends the proxy if it was released and is mapped nowhere. */
void ms_proxy_end_if_unused(struct ms_pool *pool, struct ms_proxy *proxy)
    MS_REQUIRES(ms_growth_role);

/* The reservation that holds all of [addr, addr + bytes); null: there is none. */
struct ms_segment *ms_foreign_of(const struct ms_pool *pool, ms_addr_t addr, uint64_t bytes);

/* Emits an event of a mapped proxy. */
void ms_proxy_emit(struct ms_pool *pool, enum ms_event_kind kind, const struct ms_proxy *proxy)
    MS_REQUIRES(ms_state_role);

#endif
