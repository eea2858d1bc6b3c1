/* SPDX-License-Identifier: Apache-2.0 */
/* The group lends to the device's budget. */
#include "shim/device/group/device_group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/device/group/group_thread.h"
#include "shim/group/file.h"
#include "shim/group/request.h"
#include "shim/process/fork.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/tables/identity.h"

/* What a member borrows at once. If it borrows more, it looks into the group's memory less often,
 * and more lies idle with it. */
#define STEPS_OF_CAP  256u
#define STEP_MOST     (UINT64_C(64) << 20)
#define STEP_UNIT     (UINT64_C(2) << 20)
#define GIVE_WAIT_NS  (UINT64_C(2) * MS_NS_PER_S)
#define SPILL_WAIT_NS (UINT64_C(10) * MS_NS_PER_S)
#define NAME_BYTES    160u
#define RUN_ID_BYTES  128u

/* ---- the lender ---- */

static uint64_t borrow(void *ctx, uint64_t least_bytes, uint64_t most_bytes)
{
    return ms_group_lease(ctx, least_bytes, most_bytes);
}

static void impose(void *ctx, uint64_t bytes)
{
    ms_group_impose(ctx, bytes);
}

static void give(void *ctx, uint64_t bytes)
{
    ms_group_give(ctx, bytes);
}

static uint64_t free_bytes(void *ctx)
{
    return ms_group_free_bytes(ctx);
}

static void tell(void *ctx, uint64_t committed_bytes)
{
    ms_group_tell(ctx, committed_bytes);
}

static void borrow_from_group(struct ms_device *device)
{
    const uint64_t cap = ms_group_cap_bytes(device->group);
    uint64_t step = cap / STEPS_OF_CAP;
    step = step < STEP_MOST ? step : STEP_MOST;
    device->lender = (struct ms_budget_lender){
        .ctx = device->group,
        .step_bytes = (step + STEP_UNIT - 1) / STEP_UNIT * STEP_UNIT,
        .borrow = borrow,
        .impose = impose,
        .give = give,
        .free_bytes = free_bytes,
        .tell = tell,
    };
    ms_budget_borrow_from(&device->budget, &device->lender);
}

/* ---- asking ---- */

/* Bytes to ask for: a request usually touches one granule more than its size. */
static uint64_t wanted_bytes(const struct ms_device *device, uint64_t bytes)
{
    const uint64_t spare = ms_less(atomic_load(&device->budget.borrowed_bytes),
                                   atomic_load(&device->budget.committed_bytes));
    return ms_less(bytes + 2 * device->granule_bytes, spare);
}

static uint64_t within(uint64_t ns)
{
    const uint64_t wait_ns = ms_options()->wait_ns;
    return ns < wait_ns ? ns : wait_ns;
}

static bool ask(struct ms_device *device, uint64_t bytes)
{
    const uint64_t before = ms_group_free_bytes(device->group);
    return ms_group_ask_all(device->group, wanted_bytes(device, bytes), within(GIVE_WAIT_NS)) ||
           ms_group_free_bytes(device->group) > before;
}

static bool ask_spill(struct ms_device *device, uint64_t bytes, uint64_t own_ns)
{
    return ms_group_ask_spill(device->group, own_ns, wanted_bytes(device, bytes),
                              within(SPILL_WAIT_NS));
}

/* First memory that other members hold unused; then the coldest live memory, theirs or ours; at
 * last whatever another member can move. *given: another member gave something. */
static ms_status_t climb_once(struct ms_device *device, const struct ms_group_climb *climb,
                              bool *given)
{
    ms_status_t status = MS_ERR_NO_MEMORY;
    if (ask(device, climb->bytes)) {
        status = climb->attempt(climb->ctx, false);
    }
    *given = status == MS_ERR_NO_MEMORY && climb->may_wait &&
             ask_spill(device, climb->bytes, ms_group_thread_coldest_ns(device));
    if (*given) {
        status = climb->attempt(climb->ctx, false);
    }
    if (status == MS_ERR_NO_MEMORY && climb->may_wait) {
        status = climb->attempt(climb->ctx, true);
    }
    if (status == MS_ERR_NO_MEMORY && climb->may_wait &&
        ask_spill(device, climb->bytes, UINT64_MAX)) {
        *given = true;
        status = climb->attempt(climb->ctx, true);
    }
    return status;
}

/* Climbs again where a third member may have taken what was made free: where another gave
 * something, or the others took as much meanwhile as this one wants. What they took can be asked
 * for then. */
ms_status_t ms_device_group_climb(struct ms_device *device, const struct ms_group_climb *climb)
{
    const uint64_t end_ns = ms_clock_ns() + ms_options()->wait_ns;
    ms_status_t status = MS_ERR_NO_MEMORY;
    bool given = climb->bytes <= ms_group_cap_bytes(device->group);
    while (status == MS_ERR_NO_MEMORY && given) {
        const uint64_t taken = ms_group_taken_by_others(device->group);
        status = climb_once(device, climb, &given);
        given = climb->may_wait && ms_clock_ns() < end_ns &&
                (given || ms_group_taken_by_others(device->group) - taken >= climb->bytes);
    }
    return status;
}

/* ---- joining ---- */

/* "group-..." or "run-...", in characters that a file name may have. */
static void name_group(char name[NAME_BYTES])
{
    char run[RUN_ID_BYTES];
    if (ms_options()->group != NULL) {
        (void)snprintf(name, NAME_BYTES, "group-%s", ms_options()->group);
        return;
    }
    ms_identity_run_id(environ, ms_options()->run_id, run, sizeof run);
    (void)snprintf(name, NAME_BYTES, "run-%s", run);
    for (char *at = strchr(name, '/'); at != NULL; at = strchr(at, '/')) {
        *at = '_';
    }
}

/* A fork child of a process that used the device is no member. */
static void in_child(void)
{
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        if (device != NULL) {
            ms_budget_leave_lender(&device->budget);
        }
    }
}

static void watch_forks(void)
{
    static struct ms_fork_part at_fork = {.in_child = in_child};
    static atomic_flag joined = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&joined)) {
        ms_fork_join(&at_fork);
    }
}

static void say_joined(const struct ms_device *device, const char *name, uint64_t own_cap_bytes)
{
    char cap[24], own[24], text[256];
    uint32_t others = 0;
    const uint64_t held = ms_group_others_bytes(device->group, &others);
    const uint64_t group_cap = ms_group_cap_bytes(device->group);
    if (group_cap != own_cap_bytes) {
        ms_log(MS_LOG_WARN,
               "device %d: the cap of %s is %s, set by its first process, not %s; the smaller one "
               "applies here",
               device->ordinal, name, ms_bytes_text(group_cap, cap, sizeof cap),
               ms_bytes_text(own_cap_bytes, own, sizeof own));
    }
    (void)snprintf(text, sizeof text,
                   "device %d: its cap of %s is that of %s, of which %u other processes have %s",
                   device->ordinal, ms_bytes_text(group_cap, cap, sizeof cap), name, others,
                   ms_bytes_text(held, own, sizeof own));
    ms_session_note(text);
    ms_log(MS_LOG_INFO, "%s", text);
}

bool ms_device_group_wanted(void)
{
    return ms_options()->cap_of_run || ms_options()->group != NULL;
}

void ms_device_group_join(struct ms_device *device)
{
    char name[NAME_BYTES];
    struct ms_ranks ranks;
    const char *why = NULL;
    const uint64_t cap = atomic_load(&device->budget.cap_bytes);
    if (!ms_device_group_wanted()) {
        return;
    }
    name_group(name);
    ms_identity_ranks(environ, &ranks);
    struct ms_group_wish wish = {
        .folder = MS_GROUP_FOLDER,
        .name = name,
        .total_bytes = device->total_bytes,
        .cap_bytes = cap,
        .rank = ranks.rank,
        .program = program_invocation_short_name,
    };
    memcpy(wish.uuid, device->uuid, sizeof wish.uuid);
    (void)ms_group_sweep(MS_GROUP_FOLDER);
    device->group = ms_group_join(&wish, &why);
    if (device->group == NULL) {
        ms_log(MS_LOG_WARN, "device %d: its cap limits only this process, not %s: %s",
               device->ordinal, name, why);
        return;
    }
    const uint64_t group_cap = ms_group_cap_bytes(device->group);
    atomic_store(&device->budget.cap_bytes, group_cap < cap ? group_cap : cap);
    say_joined(device, name, cap);
    borrow_from_group(device);
    watch_forks();
}

void ms_device_group_leave(struct ms_device *device)
{
    if (device->group != NULL) {
        ms_group_leave(device->group);
        device->group = NULL;
    }
}
