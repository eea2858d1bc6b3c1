/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: open addressing in shards, so that threads on different addresses rarely meet. */
#include "shim/device/ledger.h"

#include <stdlib.h>

#include "allocator/base/lock.h"

#define SHARDS           64u
#define FIRST_SLOTS      64u
#define FULL_NUMERATOR   3u /* a shard grows when three quarters of its slots are taken */
#define FULL_DENOMINATOR 4u

struct shard {
    ms_lock_t lock;
    struct ms_grant *slots; /* name 0: free */
    size_t slot_count;      /* a power of two, 0 before the first grant */
    size_t used;
};

static struct shard shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = MS_LOCK_INIT(LEDGER)}};

static inline uint64_t mix(enum ms_space space, uint64_t name)
{
    uint64_t h = name ^ ((uint64_t)space << 60);
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdULL;
    h ^= h >> 33;
    return h;
}

static struct shard *shard_of(uint64_t hash)
{
    return &shards[hash >> 58];
}

static inline size_t place_of(const struct shard *shard, enum ms_space space, uint64_t name,
                              uint64_t hash)
{
    size_t i = hash & (shard->slot_count - 1);
    while (shard->slots[i].name != 0 &&
           (shard->slots[i].name != name || shard->slots[i].space != space)) {
        i = (i + 1) & (shard->slot_count - 1);
    }
    return i;
}

static __attribute__((noinline, cold)) bool grow(struct shard *shard)
{
    struct shard wider = {.slot_count = shard->slot_count ? shard->slot_count * 2 : FIRST_SLOTS};
    wider.slots = calloc(wider.slot_count, sizeof *wider.slots);
    if (!wider.slots) {
        return false;
    }
    for (size_t i = 0; i < shard->slot_count; i++) {
        const struct ms_grant *old = &shard->slots[i];
        if (old->name != 0) {
            wider.slots[place_of(&wider, old->space, old->name, mix(old->space, old->name))] = *old;
        }
    }
    free(shard->slots);
    shard->slots = wider.slots;
    shard->slot_count = wider.slot_count;
    return true;
}

bool ms_ledger_put(const struct ms_grant *grant, struct ms_grant *displaced)
{
    displaced->name = 0;
    uint64_t hash = mix(grant->space, grant->name);
    struct shard *shard = shard_of(hash);
    ms_lock_acquire(&shard->lock);
    bool room = (shard->used + 1) * FULL_DENOMINATOR <= shard->slot_count * FULL_NUMERATOR;
    if (!room) {
        room = grow(shard);
    }
    if (room) {
        size_t i = place_of(shard, grant->space, grant->name, hash);
        if (shard->slots[i].name != 0) {
            *displaced = shard->slots[i];
        } else {
            shard->used++;
        }
        shard->slots[i] = *grant;
    }
    ms_lock_release(&shard->lock);
    return room;
}

/* Closes the gap at i: every grant behind it that would no longer be found moves up. */
static void remove_at(struct shard *shard, size_t i)
{
    size_t mask = shard->slot_count - 1;
    size_t gap = i;
    for (size_t j = (i + 1) & mask; shard->slots[j].name != 0; j = (j + 1) & mask) {
        size_t home = mix(shard->slots[j].space, shard->slots[j].name) & mask;
        if (((j - home) & mask) >= ((j - gap) & mask)) {
            shard->slots[gap] = shard->slots[j];
            gap = j;
        }
    }
    shard->slots[gap].name = 0;
    shard->used--;
}

static inline bool find(enum ms_space space, uint64_t name, struct ms_grant *out, bool take)
{
    if (name == 0) {
        return false;
    }
    uint64_t hash = mix(space, name);
    struct shard *shard = shard_of(hash);
    bool found = false;
    ms_lock_acquire(&shard->lock);
    if (shard->slot_count != 0) {
        size_t i = place_of(shard, space, name, hash);
        found = shard->slots[i].name != 0;
        if (found && out) {
            *out = shard->slots[i];
        }
        if (found && take) {
            remove_at(shard, i);
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
    uint64_t hash = mix(space, name);
    struct shard *shard = shard_of(hash);
    bool marked = false;
    ms_lock_acquire(&shard->lock);
    if (name != 0 && shard->slot_count != 0) {
        struct ms_grant *grant = &shard->slots[place_of(shard, space, name, hash)];
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
        while (i < shard->slot_count && taken < count) {
            if (shard->slots[i].name != 0 && match(ctx, &shard->slots[i])) {
                out[taken++] = shard->slots[i];
                remove_at(shard, i); /* another may have moved into i: look at it again */
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
