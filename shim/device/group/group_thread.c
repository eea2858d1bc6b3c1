/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the other members' requests one after the other. It gives unused memory first, then live
 * memory if that is asked for.
 *
 * The pool counts time in allocations, which other processes cannot compare. So this notes from
 * time to time how many allocations there were at which moment. */
#include "shim/device/group/group_thread.h"

#include <pthread.h>
#include <signal.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "shim/device/capture.h"
#include "shim/device/mempools.h"
#include "shim/group/request.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"

#define POLL_NS (MS_NS_PER_S / 2)
#define MOMENTS 64u

/* Counts of allocations and their times, ascending. Only the device's thread writes. A reader that
 * meets the thinning out may find a wrong moment; that only decides who moves memory first. */
static struct moments {
    struct moment {
        _Atomic uint64_t allocations, ns;
    } at[MOMENTS];
    _Atomic uint32_t count;
} moments[MS_DEVICES_MAX];

static void put_moment(struct moments *all, uint32_t i, uint64_t allocations, uint64_t ns)
{
    atomic_store(&all->at[i].allocations, allocations);
    atomic_store(&all->at[i].ns, ns);
}

/* If the table is full, drops every other moment. */
static void note_moment(struct moments *all, uint64_t allocations)
{
    uint32_t count = atomic_load(&all->count);
    if (count > 0 && atomic_load(&all->at[count - 1].allocations) == allocations) {
        return;
    }
    if (count == MOMENTS) {
        count = MOMENTS / 2;
        atomic_store(&all->count, count);
        for (uint32_t i = 0; i < count; i++) {
            const struct moment *from = &all->at[2 * i + 1];
            put_moment(all, i, atomic_load(&from->allocations), atomic_load(&from->ns));
        }
    }
    put_moment(all, count, allocations, ms_clock_ns());
    atomic_store(&all->count, count + 1);
}

/* The first noted moment at which there were so many allocations. */
static uint64_t moment_of(const struct moments *all, uint64_t allocations)
{
    const uint32_t count = atomic_load(&all->count);
    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load(&all->at[i].allocations) >= allocations) {
            return atomic_load(&all->at[i].ns);
        }
    }
    return ms_clock_ns();
}

uint64_t ms_group_thread_coldest_ns(struct ms_device *device)
{
    struct ms_pool_stats stats;
    uint64_t place = 0;
    if (device->pool == NULL || ms_captures_running() || !ms_pool_coldest(device->pool, &place)) {
        return UINT64_MAX;
    }
    ms_pool_stats(device->pool, &stats);
    return moment_of(&moments[device->ordinal],
                     ms_share(place, UINT64_C(1) << 32, stats.allocations));
}

/* ---- giving ---- */

/* What the pool could give now. */
static uint64_t idle_bytes(struct ms_device *device)
{
    struct ms_pool_stats stats;
    if (device->pool == NULL) {
        return 0;
    }
    ms_pool_stats(device->pool, &stats);
    note_moment(&moments[device->ordinal], stats.allocations);
    return ms_pool_idle_bytes(device->pool) + ms_device_takeable_bytes(device, &stats);
}

/* Makes room for the bytes as if this process asked for them, where the group's free memory
 * counts. */
static void give(struct ms_device *device, const struct ms_group_question *question)
{
    const bool spill = (question->wants & MS_GROUP_SPILL) != 0;
    (void)ms_budget_return(&device->budget, 0);
    if (ms_group_free_bytes(device->group) < question->bytes && !ms_captures_running()) {
        (void)ms_mempools_trim(device);
        if (device->pool != NULL) {
            (void)ms_pool_make_room(device->pool, question->bytes, spill);
        }
        (void)ms_budget_return(&device->budget, 0);
    }
}

static void answer(struct ms_device *device, const struct ms_group_question *question)
{
    const uint64_t before = atomic_load(&device->budget.borrowed_bytes);
    give(device, question);
    const uint64_t yielded = ms_less(before, atomic_load(&device->budget.borrowed_bytes));
    ms_device_check_thresholds(device);
    const uint64_t spare = idle_bytes(device);
    ms_group_answer(device->group, question, spare, ms_group_thread_coldest_ns(device), yielded);
}

static void *attend(void *argument)
{
    struct ms_device *device = argument;
    struct ms_group_question question;
    ms_guard.inside = true; /* so that what the driver calls goes straight to the driver */
    for (;;) {
        if (ms_group_wait(device->group, &question, POLL_NS)) {
            answer(device, &question);
        } else {
            ms_group_tell_spare(device->group, idle_bytes(device));
        }
    }
    return NULL;
}

/* All signals are blocked while the thread is made, and so inside it: the handlers are the
 * program's. */
void ms_group_thread_start(struct ms_device *device)
{
    sigset_t all, before;
    pthread_t thread;
    if (device->group == NULL) {
        return;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool made = pthread_create(&thread, NULL, attend, device) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made) {
        (void)pthread_detach(thread);
    } else {
        ms_log(MS_LOG_WARN,
               "device %d: no thread could be started for its group; other processes of the group "
               "get idle memory of this one only when it releases memory by itself",
               device->ordinal);
    }
}
