/* SPDX-License-Identifier: Apache-2.0 */
/* What was handed to the application, by the name it will give it back under.
 *
 * Every forwarded allocation and every pinned host range that is live has one grant here; blocks of
 * the pool are known to the pool alone, by their holder. It says whose device it is, what is
 * charged for it, and which context or memory pool it lives with. Thread-safe; short locks, no
 * device calls. */
#ifndef MEMSHIM_SHIM_DEVICE_LEDGER_H
#define MEMSHIM_SHIM_DEVICE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"

/* Names of different spaces never meet: a CUarray may have the value of an address. */
enum ms_space {
    MS_SPACE_DEVICE, /* device addresses, managed ones included */
    MS_SPACE_HOST,   /* pinned host addresses */
    MS_SPACE_HANDLE, /* arrays, mipmapped arrays, graphs, modules: handles of the driver */
    MS_SPACE_LEAVING /* device addresses that the application has freed, and work may still use */
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
    uint64_t extent_bytes; /* what is charged for, before it is rounded as the driver takes it */
    uint64_t block_id;     /* of its BLOCK_ALLOC event where no pool served it, else 0 */
    void *holder;          /* struct ms_context *, or struct ms_mempool * of a stream-ordered one */
    uint32_t site;         /* that asked for it */
    uint8_t space;         /* enum ms_space */
    uint8_t kind;          /* enum ms_grant_kind */
    uint8_t device;        /* CUDA ordinal */
    uint8_t reason;        /* enum ms_charge_reason, where extent_bytes is not 0 */
    uint8_t taking;        /* enum ms_taking, likewise */
    bool arena;            /* a framework carves tensors out of it */
};

/* False where there is no host memory for it: the caller undoes what it has granted. `displaced`
 * (never null) gets the grant that stood under this name and was never taken, which happens when
 * the driver freed something by a call that is not hooked; its name is 0 where there was none. */
bool ms_ledger_put(const struct ms_grant *grant, struct ms_grant *displaced);

/* Removes the grant and copies it out (out may be null); false where there is none. */
bool ms_ledger_take(enum ms_space space, uint64_t name, struct ms_grant *out);
bool ms_ledger_find(enum ms_space space, uint64_t name, struct ms_grant *out);

/* Notes that what this grant names is an arena; copies it out. False where there is none, or where
 * that was noted before. */
bool ms_ledger_mark_arena(enum ms_space space, uint64_t name, struct ms_grant *out);

/* Takes up to `count` grants that `match` says yes to into `out`; returns how many. Called again
 * until it returns 0. match must not call the ledger. */
size_t ms_ledger_sweep(bool (*match)(void *ctx, const struct ms_grant *grant), void *ctx,
                       struct ms_grant *out, size_t count);

/* Of every shard: around fork. */
void ms_ledger_locks(void (*act)(ms_lock_t *lock));

#endif
