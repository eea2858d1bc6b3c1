/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: sharded hash tables, so that threads on different addresses rarely contend. */
#include "shim/device/addresses/ledger.h"

#include "allocator/base/containers/table.h"
#include "allocator/base/locks/lock.h"

#define SHARDS 64u

struct shard {
    ms_lock_t lock;
    struct ms_table grants; /* struct ms_grant, by name, for all spaces */
};

static struct shard shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = MS_LOCK_INIT(LEDGER)}};

static struct shard *shard_of(uint64_t name)
{
    return &shards[name * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

/* The grant, or the free slot for it. The table has room. */
static inline struct ms_grant *grant_of(const struct shard *shard, enum ms_space space,
                                        uint64_t name)
{
    struct ms_grant *grant = ms_table_slot(&shard->grants, sizeof *grant, name);
    while (grant->name != 0 && grant->space != space) {
        grant = ms_table_next(&shard->grants, sizeof *grant, grant);
    }
    return grant;
}

bool ms_ledger_put(const struct ms_grant *grant, struct ms_grant *displaced)
{
    displaced->name = 0;
    struct shard *shard = shard_of(grant->name);
    ms_lock_acquire(&shard->lock);
    bool room = ms_table_reserve(&shard->grants, sizeof *grant);
    if (room) {
        struct ms_grant *slot = grant_of(shard, grant->space, grant->name);
        if (slot->name != 0) {
            *displaced = *slot;
        } else {
            ms_table_enter(&shard->grants, slot, grant->name);
        }
        *slot = *grant;
    }
    ms_lock_release(&shard->lock);
    return room;
}

static inline bool find(enum ms_space space, uint64_t name, struct ms_grant *out, bool take)
{
    if (name == 0) {
        return false;
    }
    struct shard *shard = shard_of(name);
    bool found = false;
    ms_lock_acquire(&shard->lock);
    if (shard->grants.room != 0) {
        struct ms_grant *grant = grant_of(shard, space, name);
        found = grant->name != 0;
        if (found && out) {
            *out = *grant;
        }
        if (found && take) {
            ms_table_remove(&shard->grants, sizeof *grant, grant);
        }
    }
    ms_lock_release(&shard->lock);
    return found;
}

bool ms_ledger_take(enum ms_space space, uint64_t name, struct ms_grant *out)
{
    return find(space, name, out, true);
}

bool ms_ledger_find(enum ms_space space, uint64_t name, struct ms_grant *out)
{
    return find(space, name, out, false);
}

bool ms_ledger_mark_arena(enum ms_space space, uint64_t name, struct ms_grant *out)
{
    struct shard *shard = shard_of(name);
    bool marked = false;
    ms_lock_acquire(&shard->lock);
    if (name != 0 && shard->grants.room != 0) {
        struct ms_grant *grant = grant_of(shard, space, name);
        marked = grant->name != 0 && !grant->arena;
        if (marked) {
            grant->arena = true;
            *out = *grant;
        }
    }
    ms_lock_release(&shard->lock);
    return marked;
}

size_t ms_ledger_sweep(bool (*match)(void *ctx, const struct ms_grant *grant), void *ctx,
                       struct ms_grant *out, size_t count)
{
    size_t taken = 0;
    for (size_t s = 0; s < SHARDS && taken < count; s++) {
        struct shard *shard = &shards[s];
        ms_lock_acquire(&shard->lock);
        size_t i = 0;
        while (i < shard->grants.room && taken < count) {
            struct ms_grant *grant = ms_table_at(&shard->grants, sizeof *grant, i);
            if (grant->name != 0 && match(ctx, grant)) {
                out[taken++] = *grant;
                /* Removal may have moved another grant to i. */
                ms_table_remove(&shard->grants, sizeof *grant, grant);
            } else {
                i++;
            }
        }
        ms_lock_release(&shard->lock);
    }
    return taken;
}

void ms_ledger_locks(void (*act)(ms_lock_t *lock))
{
    for (size_t s = 0; s < SHARDS; s++) {
        act(&shards[s].lock);
    }
}
