/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of a random test: a dry device whose calls the model watches, a budget, a pool with its
 * arenas, streams, and what goes on around them. The actors (program.h, framework.h) play on it. */
#ifndef MEMSHIM_FUZZ_STAGE_H
#define MEMSHIM_FUZZ_STAGE_H

#include <stdatomic.h>

#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "allocator/device/dry.h"
#include "allocator/pool.h"
#include "model.h"

enum { STREAMS = 8, DEVICE_ERROR = 999 };

#define ON_DEVICE STREAMS /* the place of no stream: the whole device */

struct dice {
    uint64_t state;
};
uint64_t draw(struct dice *dice, uint64_t below);

struct stage_config {
    uint64_t granule_bytes; /* 0: no virtual memory management */
    uint64_t cap_bytes, total_bytes;
    uint64_t host_limit_bytes, spill_limit_bytes;
    const struct ms_choice *choice;
    const struct ms_spill_choice *spill_choice;
    const struct ms_dry_costs *costs;
    uint64_t wait_limit_ns;
    bool views;
    uint64_t page_bytes;
    bool crowded; /* several threads play: what depends on nobody else playing is not checked */
};

struct stage {
    struct stage_config config;
    ms_dry_t *dry;
    struct ms_device_ops ops; /* the dry device's, watched */
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
    struct model model;
    ms_stream_t stream[STREAMS];
    ms_stream_t next_stream;

    bool capturing, stalled; /* as the dry device was told */
    bool armed;              /* a call of the device is going to fail, or has */
    struct {
        bool waits;        /* for the first failure */
        enum ms_dry_op op; /* MS_DRY_OP_COUNT: any, and `count` calls on end */
        uint64_t nth, count;
        ms_status_t status;
    } second;               /* a call that fails while the first failure is being dealt with */
    bool device_refuses;    /* to create chunks, as if others had its memory */
    bool host_refuses;      /* likewise, on the host */
    bool halt_refuses;      /* to stand still */
    pthread_rwlock_t gate;  /* held by whoever gives the device work; closed during standstills */
    atomic_bool lost;       /* a device call that may not fail did: what it held is set aside */
    uint64_t imposed_bytes; /* charged whether there was room or not */
    bool tells_lies;        /* now and then a report cannot be true */
    bool mismatched;        /* a wrong total was reported */
    _Atomic uint64_t forwarded_bytes;
    _Atomic uint64_t tensors, tensor_bytes; /* live, by those who reported them */
    _Atomic uint64_t page_bytes;            /* of proxies that are mapped */
    _Atomic uint64_t loose_bytes;           /* of proxies that exist and are not */
    _Atomic uint64_t invalid_reports;
    _Atomic uint64_t served, refused, allocations, backed; /* how much was played */
};

/* Aborts when the host has no memory. */
void stage_begin(struct stage *stage, const struct stage_config *config);

/* Nothing fails, stalls or captures any more. */
void stage_calm(struct stage *stage);

/* All work is done and seen to be, the pool goes, and the device must have everything back. */
void stage_end(struct stage *stage);

/* Work of the device's: waits while it is held. */
void stage_work(struct stage *stage, ms_stream_t stream, uint64_t owner, ms_addr_t addr,
                uint64_t bytes, uint64_t duration_ns);

/* What the host sees of the device's memory, at a moment in which nothing is on its way between the
 * device and the host: a standstill takes backing away for a while. */
void stage_add_block(struct stage *stage, const struct ms_request *request,
                     const struct ms_block_info *info);
bool stage_accessible(struct stage *stage, ms_addr_t addr, uint64_t bytes);

/* Contents: what `tag` was written to must hold it until others are written there. */
void stage_write(struct stage *stage, ms_addr_t addr, uint64_t bytes, uint64_t tag);
void stage_expect(struct stage *stage, ms_addr_t addr, uint64_t bytes, uint64_t tag);

/* Books against the model, cheap enough for every operation; thoroughly: everything. */
void stage_compare(struct stage *stage, bool thoroughly);

/* Whether a status other than success is one that the stage can explain. */
bool stage_excuses(const struct stage *stage, ms_status_t status);

/* The host waits until all queued work is done and sees that it is. False where that cannot be,
 * while something captures. */
bool stage_settle(struct stage *stage);

/* The total that a framework reports along, after an allocation (by > 0) or a death (by < 0). */
uint64_t stage_total(struct stage *stage, int64_t by_bytes);

/* Whether the pool has promised that a request of this size is served now: in whole granules, what
 * the budget has left, what lies in chunks under nothing, and what could be taken out of arenas. */
bool stage_promises(struct stage *stage, uint64_t bytes);
/* What the budget and the host had left at one moment: cover of holes moves between the two. */
struct stage_room {
    uint64_t free_bytes, host_bytes;
};
struct stage_room stage_room(struct stage *stage);
/* Likewise of several together, which began with this room. */
bool stage_promises_all(struct stage *stage, uint64_t bytes, struct stage_room room);

/* A stream is destroyed, and another takes its place and comes after it. */
void stage_replace_stream(struct stage *stage, unsigned place);

/* `mask` has a bit for each place of a stream: this stream comes after them all. */
void stage_follow(struct stage *stage, ms_stream_t stream, uint32_t mask);

#endif
