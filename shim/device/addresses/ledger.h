/* SPDX-License-Identifier: Apache-2.0 */
/* What was handed to the application, under the name by which it will give it back.
 *
 * Each live forwarded allocation and each pinned host range has one grant here; the pool knows its
 * own blocks. A grant has its device, its charge, and the context or memory pool that it lives
 * with. Thread-safe; short locks, no device calls. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_LEDGER_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"

/* The same value may be a name in two spaces: a CUarray may equal an address. */
enum ms_space {
    MS_SPACE_DEVICE,  /* device addresses, managed ones included */
    MS_SPACE_HOST,    /* pinned host addresses */
    MS_SPACE_HANDLE,  /* arrays, mipmapped arrays, graphs, modules: handles of the driver */
    MS_SPACE_LEAVING, /* device addresses that the application has freed while work may still use
                         them */
    MS_SPACE_GRAPH    /* instantiated graphs that allocate; not charged (graph_memory.h) */
};

enum ms_grant_kind {
    MS_GRANT_FORWARDED, /* the driver's own; dies with its context */
    MS_GRANT_OUTSIDE,   /* the driver's own, stream-ordered; outlives contexts */
    MS_GRANT_OVERHEAD,  /* what a module, a library or a graph made the driver take */
    MS_GRANT_HOST       /* pinned host memory; not charged */
};

struct ms_grant {
    uint64_t name;         /* address or handle, unique in its space while live */
    uint64_t bytes;        /* as asked for */
    uint64_t extent_bytes; /* what the charge is for, before rounding to what the driver takes */
    uint64_t block_id;     /* of its BLOCK_ALLOC event, if no pool served it; otherwise 0 */
    void *holder;          /* struct ms_context *, or struct ms_mempool * for a stream-ordered
                              one */
    uint32_t site;         /* call site that asked for it */
    uint8_t space;         /* enum ms_space */
    uint8_t kind;          /* enum ms_grant_kind */
    uint8_t device;        /* CUDA ordinal */
    uint8_t reason;        /* enum ms_charge_reason, where extent_bytes is not 0 */
    uint8_t taking;        /* enum ms_taking, likewise */
    bool arena;            /* a framework carves tensors out of it */
    uint32_t turn;         /* of a graph: its device's graph_turn when it got its memory; 0: it has
                              none */
};

/* False: no host memory for it; the caller undoes what it granted. `displaced` (never null) gets a
 * grant that was still here under this name. That happens after the driver freed something by a
 * call without a hook. Its name is 0 if there was none. */
bool ms_ledger_put(const struct ms_grant *grant, struct ms_grant *displaced);

/* Removes the grant and copies it out (out may be null); false if there is none. */
bool ms_ledger_take(enum ms_space space, uint64_t name, struct ms_grant *out);
bool ms_ledger_find(enum ms_space space, uint64_t name, struct ms_grant *out);

/* Marks what this grant names as an arena, and copies the grant out. False if there is none, or if
 * it was marked before. */
bool ms_ledger_mark_arena(enum ms_space space, uint64_t name, struct ms_grant *out);

/* Takes up to `count` grants for which `match` returns true into `out`; returns how many. Call it
 * again until it returns 0. match must not call the ledger. */
size_t ms_ledger_sweep(bool (*match)(void *ctx, const struct ms_grant *grant), void *ctx,
                       struct ms_grant *out, size_t count);

/* Calls `act` for the lock of every shard, around fork. */
void ms_ledger_locks(void (*act)(ms_lock_t *lock));

#endif
