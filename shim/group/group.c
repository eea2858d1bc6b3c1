/* SPDX-License-Identifier: Apache-2.0 */
/* Members and leases. */
#include "shim/group/group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/group/alive.h"
#include "shim/group/file.h"
#include "shim/group/member.h"
#include "shim/group/request.h"

#define CLAIM_TURNS 16 /* two members that claim at once may both see too little room */

/* ---- joining ---- */

static const char *furnish(struct ms_group_region *region, const struct ms_group_wish *wish)
{
    region->pid_namespace = ms_pid_namespace();
    region->total_bytes = wish->total_bytes;
    region->cap_bytes = wish->cap_bytes;
    memcpy(region->uuid, wish->uuid, sizeof region->uuid);
    region->magic = MS_GROUP_MAGIC;
    return region->pid_namespace == 0 ? "/proc cannot be read" : NULL;
}

static const char *trouble_with(const struct ms_group_region *region,
                                const struct ms_group_wish *wish)
{
    if (region->pid_namespace != ms_pid_namespace()) {
        return "its processes are of another namespace of process ids, and cannot be seen from "
               "here";
    }
    return region->total_bytes != wish->total_bytes ||
                   memcmp(region->uuid, wish->uuid, sizeof region->uuid) != 0
               ? "the device is part of another one (MIG)"
               : NULL;
}

static struct ms_group_slot *take_slot(struct ms_group_region *region,
                                       const struct ms_group_wish *wish)
{
    const uint32_t pid = (uint32_t)getpid();
    struct ms_group_slot *found = NULL;
    for (uint32_t i = MS_GROUP_MEMBERS_MAX; i-- > 0;) {
        struct ms_group_slot *slot = &region->slots[i];
        const uint32_t owner = atomic_load(&slot->pid);
        /* A slot with this process's own pid is from the program before an exec. */
        found = owner == 0 || owner == pid ? slot : found;
        if (owner == pid) {
            atomic_store(&slot->pid, 0);
        }
    }
    if (found == NULL) {
        return NULL;
    }
    memset(found, 0, sizeof *found);
    atomic_store(&found->coldest_ns, UINT64_MAX);
    found->rank = wish->rank;
    found->start_ticks = ms_start_ticks(pid);
    (void)snprintf(found->name, sizeof found->name, "%.31s", wish->program);
    atomic_store(&found->pid, pid);
    return found;
}

static const char *join(struct ms_group_region *region, bool made, const struct ms_group_wish *wish,
                        struct ms_group_slot **own)
{
    const char *why = made ? furnish(region, wish) : trouble_with(region, wish);
    if (why != NULL) {
        return why;
    }
    if (ms_group_reap(region) == 0) {
        region->cap_bytes = wish->cap_bytes;
        atomic_store(&region->context_bytes, 0);
    }
    *own = take_slot(region, wish);
    return *own != NULL ? NULL : "64 processes share the device already";
}

ms_group_t *ms_group_join(const struct ms_group_wish *wish, const char **why)
{
    struct ms_group_file file;
    ms_group_t *group = calloc(1, sizeof *group);
    *why = "there is no memory for it";
    if (group == NULL || !ms_group_path(wish->folder, wish->name, wish->uuid, group->path) ||
        !ms_group_file_open(group->path, true, &file, why)) {
        free(group);
        return NULL;
    }
    group->region = file.region;
    *why = join(file.region, file.made, wish, &group->own);
    ms_group_file_close(&file, *why == NULL);
    if (*why != NULL) {
        free(group);
        return NULL;
    }
    return group;
}

void ms_group_leave(ms_group_t *group)
{
    struct ms_group_file file;
    const char *why = NULL;
    if (ms_group_file_open(group->path, false, &file, &why)) {
        atomic_store(&group->own->pid, 0);
        atomic_store(&group->own->leased_bytes, 0);
        ms_group_file_close(&file, false);
    }
    (void)munmap(group->region, sizeof *group->region);
    free(group);
}

/* ---- sums ---- */

uint64_t ms_group_cap_bytes(const ms_group_t *group)
{
    return group->region->cap_bytes;
}

static uint64_t leased_by_all(const struct ms_group_region *region)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const uint64_t leased = atomic_load(&region->slots[i].leased_bytes);
        sum = leased > UINT64_MAX - sum ? UINT64_MAX : sum + leased;
    }
    return sum;
}

uint64_t ms_group_free_bytes(const ms_group_t *group)
{
    const uint64_t leased = leased_by_all(group->region);
    return leased < group->region->cap_bytes ? group->region->cap_bytes - leased : 0;
}

static bool is_other(const ms_group_t *group, const struct ms_group_slot *slot)
{
    return slot != group->own && atomic_load(&slot->pid) != 0;
}

uint64_t ms_group_spare_bytes(const ms_group_t *group)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const struct ms_group_slot *slot = &group->region->slots[i];
        const uint64_t leased = atomic_load(&slot->leased_bytes);
        const uint64_t used = atomic_load(&slot->used_bytes);
        const uint64_t spare =
            atomic_load(&slot->spare_bytes) + (leased > used ? leased - used : 0);
        if (is_other(group, slot)) {
            sum += spare < leased ? spare : leased;
        }
    }
    return sum;
}

uint64_t ms_group_others_bytes(const ms_group_t *group, uint32_t *count)
{
    uint64_t sum = 0;
    *count = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const struct ms_group_slot *slot = &group->region->slots[i];
        if (is_other(group, slot)) {
            sum += atomic_load(&slot->leased_bytes);
            (*count)++;
        }
    }
    return sum;
}

uint64_t ms_group_taken_by_others(const ms_group_t *group)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const struct ms_group_slot *slot = &group->region->slots[i];
        if (is_other(group, slot)) {
            sum += atomic_load_explicit(&slot->taken_bytes, memory_order_relaxed);
        }
    }
    return sum;
}

uint64_t ms_group_used_bytes(const struct ms_group_region *region, uint32_t pid, uint32_t *count)
{
    uint64_t sum = 0;
    *count = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const struct ms_group_slot *slot = &region->slots[i];
        const uint32_t owner = atomic_load(&slot->pid);
        if (owner != 0 && owner != pid) {
            sum += atomic_load_explicit(&slot->used_bytes, memory_order_relaxed);
            (*count)++;
        }
    }
    return sum;
}

uint64_t ms_group_used_by_others(const ms_group_t *group)
{
    uint32_t others = 0;
    return ms_group_used_bytes(group->region, atomic_load(&group->own->pid), &others);
}

bool ms_group_largest_other(const ms_group_t *group, struct ms_group_share *out)
{
    *out = (struct ms_group_share){0};
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const struct ms_group_slot *slot = &group->region->slots[i];
        const uint64_t leased = atomic_load(&slot->leased_bytes);
        if (is_other(group, slot) && (out->pid == 0 || leased > out->leased_bytes)) {
            *out = (struct ms_group_share){
                .pid = atomic_load(&slot->pid), .rank = slot->rank, .leased_bytes = leased};
            memcpy(out->name, slot->name, sizeof out->name - 1);
        }
    }
    return out->pid != 0;
}

/* ---- leases ---- */

static bool claim(ms_group_t *group, uint64_t bytes)
{
    struct ms_group_slot *own = group->own;
    if (bytes > group->region->cap_bytes) {
        return false;
    }
    atomic_fetch_add(&own->leased_bytes, bytes);
    if (leased_by_all(group->region) <= group->region->cap_bytes) {
        return true;
    }
    atomic_fetch_sub(&own->leased_bytes, bytes);
    return false;
}

static uint64_t claim_some(ms_group_t *group, uint64_t least, uint64_t most)
{
    for (int turn = 0; turn < CLAIM_TURNS; turn++) {
        const uint64_t room = ms_group_free_bytes(group);
        const uint64_t bytes = turn == 0 && room >= most ? most : least;
        if (room >= least && claim(group, bytes)) {
            return bytes;
        }
        (void)sched_yield(); /* what another member claimed in vain is free again by now */
    }
    return 0;
}

bool ms_group_reap_ended(ms_group_t *group)
{
    struct ms_group_file file;
    const char *why = NULL;
    const uint64_t before = ms_group_free_bytes(group);
    if (!ms_group_file_open(group->path, false, &file, &why)) {
        return false;
    }
    (void)ms_group_reap(file.region);
    ms_group_file_close(&file, false);
    return ms_group_free_bytes(group) > before;
}

uint64_t ms_group_lease(ms_group_t *group, uint64_t least, uint64_t most)
{
    uint64_t bytes = claim_some(group, least, most);
    if (bytes == 0 && ms_group_reap_ended(group)) {
        bytes = claim_some(group, least, most);
    }
    atomic_fetch_add_explicit(&group->own->taken_bytes, bytes, memory_order_relaxed);
    return bytes;
}

void ms_group_impose(ms_group_t *group, uint64_t bytes)
{
    atomic_fetch_add(&group->own->leased_bytes, bytes);
}

void ms_group_give(ms_group_t *group, uint64_t bytes)
{
    atomic_fetch_sub(&group->own->leased_bytes, bytes);
    ms_group_changed(group);
}

void ms_group_tell(ms_group_t *group, uint64_t used_bytes)
{
    atomic_store_explicit(&group->own->used_bytes, used_bytes, memory_order_relaxed);
}

void ms_group_tell_context(ms_group_t *group, uint64_t bytes)
{
    uint64_t known = atomic_load(&group->region->context_bytes);
    while (bytes > known &&
           !atomic_compare_exchange_weak(&group->region->context_bytes, &known, bytes)) {
    }
}

uint64_t ms_group_context_bytes(const ms_group_t *group)
{
    return atomic_load(&group->region->context_bytes);
}
