/* SPDX-License-Identifier: Apache-2.0 */
/* Questions between members. If two members ask one at the same time, it answers once: it combines
 * the bits, and takes the larger number of bytes. */
#include "shim/group/request.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "shim/group/member.h"

#define POLL_NS 20000000u /* a member that ends after it was asked never answers */

static void wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void sleep_on(_Atomic uint32_t *word, uint32_t value, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, timeout, NULL, 0);
}

void ms_group_changed(ms_group_t *group)
{
    atomic_fetch_add(&group->region->changes, 1);
    wake(&group->region->changes);
}

/* ---- asking ---- */

static bool is_behind(const _Atomic uint32_t *serial, uint32_t question)
{
    return (int32_t)(atomic_load(serial) - question) < 0;
}

/* False for a member that did not answer a question in time: it is stopped, or gone. It is not
 * waited for again until it has answered. */
static bool is_other(const ms_group_t *group, uint32_t i)
{
    const struct ms_group_slot *slot = &group->region->slots[i];
    const uint32_t pid = atomic_load(&slot->pid);
    const uint64_t deaf = atomic_load(&group->deaf[i]);
    return slot != group->own && pid != 0 &&
           (deaf >> 32 != pid || !is_behind(&slot->answered, (uint32_t)deaf));
}

static void note_deaf(ms_group_t *group, uint32_t i, uint32_t serial)
{
    const uint64_t pid = atomic_load(&group->region->slots[i].pid);
    atomic_store(&group->deaf[i], pid << 32 | serial);
}

/* Returns the question's number. */
static uint32_t put(struct ms_group_slot *slot, enum ms_group_want want, uint64_t bytes)
{
    uint64_t wanted = atomic_load(&slot->wanted_bytes);
    while (bytes > wanted && !atomic_compare_exchange_weak(&slot->wanted_bytes, &wanted, bytes)) {
    }
    atomic_fetch_or(&slot->wanted, (uint32_t)want);
    const uint32_t serial = atomic_fetch_add(&slot->asked, 1) + 1;
    wake(&slot->asked);
    return serial;
}

struct asked {
    enum ms_group_want want;
    uint64_t members; /* bit i: slot i */
    uint32_t serials[MS_GROUP_MEMBERS_MAX];
};

/* late: the time is over; notes the members that have not answered. One that works on the question
 * of another member answers later, so what it holds can still be asked for. */
static bool all_answered(ms_group_t *group, const struct asked *asked, bool late)
{
    bool all = true;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX && (all || late); i++) {
        const struct ms_group_slot *slot = &group->region->slots[i];
        const bool missing = (asked->members >> i & 1u) != 0 && atomic_load(&slot->pid) != 0 &&
                             is_behind(&slot->answered, asked->serials[i]);
        const bool works = atomic_load(&slot->heard) != atomic_load(&slot->answered);
        if (missing && late && (asked->want == MS_GROUP_SPILL || !works)) {
            note_deaf(group, i, asked->serials[i]);
        }
        all = all && !missing;
    }
    return all;
}

/* True: the group has the bytes. */
static bool wait_for(ms_group_t *group, const struct asked *asked, uint64_t bytes, uint64_t wait_ns)
{
    const uint64_t end_ns = ms_clock_ns() + wait_ns;
    for (;;) {
        const uint32_t changes = atomic_load(&group->region->changes);
        if (ms_group_free_bytes(group) >= bytes) {
            return true;
        }
        const uint64_t now_ns = ms_clock_ns();
        if (all_answered(group, asked, now_ns >= end_ns) || now_ns >= end_ns) {
            return false;
        }
        const uint64_t left_ns = end_ns - now_ns;
        const struct timespec turn = {.tv_nsec = (long)(left_ns < POLL_NS ? left_ns : POLL_NS)};
        sleep_on(&group->region->changes, changes, &turn);
    }
}

bool ms_group_ask_all(ms_group_t *group, uint64_t bytes, uint64_t wait_ns)
{
    struct asked asked = {.want = MS_GROUP_GIVE};
    if (ms_group_reap_ended(group) && ms_group_free_bytes(group) >= bytes) {
        return true;
    }
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        if (is_other(group, i)) {
            asked.members |= UINT64_C(1) << i;
            asked.serials[i] = put(&group->region->slots[i], MS_GROUP_GIVE, bytes);
        }
    }
    return wait_for(group, &asked, bytes, wait_ns);
}

/* The member with the coldest memory by what each said last, of those that own_ns admits. False:
 * all of them were tried. */
static bool next_coldest(const ms_group_t *group, uint64_t tried, uint64_t own_ns, uint32_t *member)
{
    uint64_t coldest_ns = UINT64_MAX;
    bool found = false;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        const uint64_t ns = atomic_load(&group->region->slots[i].coldest_ns);
        if ((tried >> i & 1u) == 0 && is_other(group, i) && (ns < own_ns || own_ns == UINT64_MAX) &&
            (!found || ns < coldest_ns)) {
            coldest_ns = ns;
            *member = i;
            found = true;
        }
    }
    return found;
}

static bool ask_one(ms_group_t *group, uint32_t member, uint64_t bytes, uint64_t wait_ns)
{
    struct ms_group_slot *slot = &group->region->slots[member];
    const uint64_t before = atomic_load(&slot->yielded_bytes);
    struct asked asked = {.want = MS_GROUP_SPILL, .members = UINT64_C(1) << member};
    asked.serials[member] = put(slot, MS_GROUP_SPILL, bytes);
    return wait_for(group, &asked, bytes, wait_ns) || atomic_load(&slot->yielded_bytes) > before;
}

bool ms_group_ask_spill(ms_group_t *group, uint64_t own_ns, uint64_t bytes, uint64_t wait_ns)
{
    const uint64_t end_ns = ms_clock_ns() + wait_ns;
    uint64_t tried = 0;
    uint32_t member = 0;
    bool given = false;
    while (!given && ms_clock_ns() < end_ns && next_coldest(group, tried, own_ns, &member)) {
        tried |= UINT64_C(1) << member;
        given = ask_one(group, member, bytes, ms_less(end_ns, ms_clock_ns()));
    }
    return given;
}

/* ---- answering ---- */

bool ms_group_wait(ms_group_t *group, struct ms_group_question *question, uint64_t wait_ns)
{
    const struct timespec turn = {.tv_sec = (time_t)(wait_ns / MS_NS_PER_S),
                                  .tv_nsec = (long)(wait_ns % MS_NS_PER_S)};
    struct ms_group_slot *own = group->own;
    uint32_t serial = atomic_load(&own->asked);
    if (serial == atomic_load(&own->answered)) {
        sleep_on(&own->asked, serial, &turn);
        serial = atomic_load(&own->asked);
    }
    if (serial == atomic_load(&own->answered)) {
        return false;
    }
    atomic_store(&own->heard, serial);
    question->serial = serial;
    question->wants = atomic_exchange(&own->wanted, 0);
    question->bytes = atomic_exchange(&own->wanted_bytes, 0);
    return true;
}

void ms_group_tell_spare(ms_group_t *group, uint64_t spare_bytes)
{
    atomic_store_explicit(&group->own->spare_bytes, spare_bytes, memory_order_relaxed);
}

void ms_group_answer(ms_group_t *group, const struct ms_group_question *question,
                     uint64_t spare_bytes, uint64_t coldest_ns, uint64_t yielded_bytes)
{
    struct ms_group_slot *own = group->own;
    atomic_store(&own->spare_bytes, spare_bytes);
    atomic_store(&own->coldest_ns, coldest_ns);
    atomic_fetch_add(&own->yielded_bytes, yielded_bytes);
    atomic_store(&own->answered, question->serial);
    ms_group_changed(group);
}
