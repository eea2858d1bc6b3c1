/* SPDX-License-Identifier: Apache-2.0 */
/* Updates a device's sums and peaks with each event. */
#include "report/trace/aggregate.h"

#include <stddef.h>

#include "allocator/base/arithmetic.h"

static void take(uint64_t *sum, uint64_t bytes)
{
    *sum = *sum > bytes ? *sum - bytes : 0;
}

uint64_t ms_counters_live(const struct ms_counters *counters)
{
    return counters->block_bytes + counters->tensor_bytes;
}

uint64_t ms_counters_reserved(const struct ms_counters *counters)
{
    uint64_t bytes = counters->owner_bytes[MS_OWNER_POOL];

    if (counters->outside) {
        bytes += counters->owner_bytes[MS_OWNER_APPLICATION];
    }
    /* Without a pool the framework's segments are forwarded allocations. */
    if ((counters->outside & MS_OUTSIDE_TENSORS) && bytes == 0) {
        bytes = counters->reason_bytes[MS_CHARGE_ALLOCATION];
    }
    return bytes;
}

uint64_t ms_counters_charged(const struct ms_counters *counters)
{
    uint64_t bytes = 0;

    for (int owner = 0; owner < MS_OWNER_COUNT; owner++) {
        bytes += counters->owner_bytes[owner];
    }
    return bytes;
}

static struct ms_moment moment_now(const struct ms_aggregate *aggregate, uint64_t live_bytes,
                                   uint64_t time_ns)
{
    const struct ms_counters *now = &aggregate->now;
    struct ms_moment moment = {
        .time_ns = time_ns,
        .live_bytes = live_bytes,
        .reserved_bytes = ms_counters_reserved(now),
        .charged_bytes = ms_counters_charged(now),
        .cap_bytes = now->cap_bytes,
    };
    return moment;
}

/* Live bytes without the newest block, while that may still become an arena. */
static uint64_t certain_live(const struct ms_aggregate *aggregate)
{
    uint64_t live = ms_counters_live(&aggregate->now);

    take(&live, aggregate->fresh_bytes);
    return live;
}

static inline uint64_t drawn_live(const struct ms_aggregate *aggregate)
{
    return aggregate->tensor_allocations > 0 ? certain_live(aggregate)
                                             : ms_counters_live(&aggregate->now);
}

struct ms_moment ms_aggregate_moment(const struct ms_aggregate *aggregate, uint64_t time_ns)
{
    return moment_now(aggregate, drawn_live(aggregate), time_ns);
}

struct ms_moment ms_aggregate_peak_live(const struct ms_aggregate *aggregate)
{
    if (aggregate->fresh_peak.live_bytes > aggregate->peak_live.live_bytes) {
        return aggregate->fresh_peak;
    }
    return aggregate->peak_live;
}

const struct ms_counters *ms_aggregate_at_peak(const struct ms_aggregate *aggregate)
{
    if (aggregate->fresh_peak.live_bytes > aggregate->peak_live.live_bytes) {
        return &aggregate->fresh_at_peak;
    }
    return aggregate->at_peak_saved ? &aggregate->at_peak : &aggregate->now;
}

int64_t ms_aggregate_fragmentation_ppm(const struct ms_aggregate *aggregate)
{
    uint64_t reserved = aggregate->peak_reserved.reserved_bytes;
    uint64_t live = aggregate->peak_reserved.live_bytes;

    if (ms_counters_reserved(&aggregate->now) == reserved &&
        ms_counters_live(&aggregate->now) > live) {
        live = ms_counters_live(&aggregate->now); /* the newest block is part of it */
    }
    if (aggregate->fresh_peak.reserved_bytes == reserved &&
        aggregate->fresh_peak.live_bytes > live) {
        live = aggregate->fresh_peak.live_bytes; /* before something else was freed */
    }
    if (reserved == 0) {
        return -1;
    }
    if (live >= reserved) {
        return 0;
    }
    return (int64_t)ms_share(reserved - live, reserved, 1000000);
}

bool ms_event_is_allocation(const struct ms_event *event)
{
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_ALLOC:
        return true;
    case MS_EVENT_CHUNK_CREATE:
        return event->owner == MS_OWNER_APPLICATION;
    case MS_EVENT_CHARGE:
        return event->owner == MS_OWNER_FORWARDED;
    default:
        return false;
    }
}

/* Copies the composition at the peak of live bytes only when it is about to change: a growing
 * workload sets a new peak at every event, and pays for a copy only at the last one. */
static void keep_peak(struct ms_aggregate *aggregate)
{
    if (!aggregate->at_peak_saved) {
        aggregate->at_peak = aggregate->now;
        aggregate->at_peak_saved = 1;
    }
}

/* To be called before live bytes grow by `bytes`. */
static void before_growth(struct ms_aggregate *aggregate, uint64_t bytes)
{
    if (ms_counters_live(&aggregate->now) + bytes <= aggregate->peak_live.live_bytes) {
        keep_peak(aggregate);
    }
}

static void note_peak_live(struct ms_aggregate *aggregate, uint64_t time_ns)
{
    uint64_t live = ms_counters_live(&aggregate->now);

    if (live > aggregate->peak_live.live_bytes) {
        aggregate->peak_live = moment_now(aggregate, live, time_ns);
        aggregate->at_peak_saved = 0;
    }
}

/* Reserved bytes peak before the allocation that needs them is live, and may stay there long: notes
 * the most live bytes meanwhile. */
static void note_reserved_live(struct ms_aggregate *aggregate)
{
    const uint64_t live = certain_live(aggregate);

    if (live > aggregate->peak_reserved.live_bytes &&
        ms_counters_reserved(&aggregate->now) == aggregate->peak_reserved.reserved_bytes) {
        aggregate->peak_reserved.live_bytes = live;
    }
}

/* The newest block is no arena: its peak is final. */
static void settle_fresh(struct ms_aggregate *aggregate)
{
    if (aggregate->fresh_peak.live_bytes > aggregate->peak_live.live_bytes) {
        aggregate->peak_live = aggregate->fresh_peak;
        aggregate->at_peak = aggregate->fresh_at_peak;
        aggregate->at_peak_saved = 1;
    }
    if (aggregate->fresh_peak.reserved_bytes == aggregate->peak_reserved.reserved_bytes &&
        aggregate->fresh_peak.live_bytes > aggregate->peak_reserved.live_bytes) {
        aggregate->peak_reserved.live_bytes = aggregate->fresh_peak.live_bytes;
    }
    aggregate->fresh_id = 0;
    aggregate->fresh_bytes = 0;
    aggregate->fresh_peak.live_bytes = 0;
    note_reserved_live(aggregate);
}

static void note_fresh(struct ms_aggregate *aggregate, const struct ms_event *event,
                       uint64_t time_ns)
{
    uint64_t live = ms_counters_live(&aggregate->now);

    aggregate->fresh_id = event->id;
    aggregate->fresh_bytes = event->bytes;
    aggregate->fresh_peak = moment_now(aggregate, live, time_ns);
    if (live > aggregate->peak_live.live_bytes) {
        aggregate->fresh_at_peak = aggregate->now;
    }
}

static void note_peak_charged(struct ms_aggregate *aggregate, uint64_t time_ns)
{
    struct ms_moment moment = moment_now(aggregate, ms_counters_live(&aggregate->now), time_ns);

    if (moment.charged_bytes > aggregate->peak_charged.charged_bytes) {
        aggregate->peak_charged = moment;
    }
    if (moment.reserved_bytes > aggregate->peak_reserved.reserved_bytes) {
        aggregate->peak_reserved = moment;
        aggregate->peak_reserved.live_bytes = certain_live(aggregate);
    }
}

/* Notes live memory of this kind outside the pool; more may count as reserved from here on. */
static void note_outside(struct ms_aggregate *aggregate, enum ms_outside what, uint64_t time_ns)
{
    if (!(aggregate->now.outside & what)) {
        aggregate->now.outside |= what;
        note_peak_charged(aggregate, time_ns);
    }
}

static void apply_block(struct ms_aggregate *aggregate, const struct ms_event *event,
                        uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;
    const uint64_t forwarded_bytes = event->owner == MS_OWNER_FORWARDED ? event->bytes : 0;

    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        settle_fresh(aggregate);
        keep_peak(aggregate);
        if (event->owner == MS_OWNER_APPLICATION) {
            note_outside(aggregate, MS_OUTSIDE_BLOCKS, time_ns);
        }
        now->block_bytes += event->bytes;
        now->forwarded_block_bytes += forwarded_bytes;
        now->blocks++;
        aggregate->allocations++;
        note_fresh(aggregate, event, time_ns);
        break;
    case MS_EVENT_BLOCK_FREE:
        keep_peak(aggregate);
        if (event->id == aggregate->fresh_id) {
            settle_fresh(aggregate);
        }
        if (event->aux == 1) {
            take(&now->arena_bytes, event->bytes);
            take(&now->arenas, 1);
        } else {
            take(&now->block_bytes, event->bytes);
            take(&now->forwarded_block_bytes, forwarded_bytes);
        }
        take(&now->blocks, 1);
        aggregate->frees++;
        break;
    default: /* MS_EVENT_BLOCK_ARENA */
        keep_peak(aggregate);
        take(&now->block_bytes, event->bytes);
        take(&now->forwarded_block_bytes, forwarded_bytes);
        now->arena_bytes += event->bytes;
        now->arenas++;
        if (event->id == aggregate->fresh_id) {
            aggregate->fresh_id = 0;
            aggregate->fresh_bytes = 0;
            aggregate->fresh_peak.live_bytes = 0;
        }
        break;
    }
}

static void apply_tensor(struct ms_aggregate *aggregate, const struct ms_event *event,
                         uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;

    if (event->kind == MS_EVENT_TENSOR_FREE) {
        keep_peak(aggregate);
        take(&now->tensor_bytes, event->bytes);
        take(&now->tensors, 1);
        aggregate->tensor_frees++;
        return;
    }
    /* PyTorch holds one lock from a segment's allocation to its first tensor. So a tensor elsewhere
     * shows that the newest block will not become an arena. */
    if (aggregate->fresh_id != 0) {
        settle_fresh(aggregate);
    }
    before_growth(aggregate, event->bytes);
    now->tensor_bytes += event->bytes;
    now->tensors++;
    aggregate->tensor_allocations++;
    if (event->aux == 0) {
        note_outside(aggregate, MS_OUTSIDE_TENSORS, time_ns);
    }
    if (now->tensor_bytes > aggregate->peak_tensor_bytes) {
        aggregate->peak_tensor_bytes = now->tensor_bytes;
    }
    note_peak_live(aggregate, time_ns);
    note_reserved_live(aggregate);
}

static void apply_chunk(struct ms_aggregate *aggregate, const struct ms_event *event,
                        uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;
    bool host = event->aux == MS_LOCATION_HOST;

    keep_peak(aggregate);
    if (event->kind == MS_EVENT_CHUNK_RELEASE) {
        take(host ? &now->host_chunk_bytes : &now->owner_bytes[event->owner], event->bytes);
        aggregate->driver_calls[MS_CALL_RELEASE]++;
        return;
    }
    aggregate->driver_calls[MS_CALL_CREATE]++;
    if (host) {
        now->host_chunk_bytes += event->bytes;
        if (now->host_chunk_bytes > aggregate->peak_host_chunk_bytes) {
            aggregate->peak_host_chunk_bytes = now->host_chunk_bytes;
        }
        return;
    }
    now->owner_bytes[event->owner] += event->bytes;
    note_peak_charged(aggregate, time_ns);
}

static void apply_charge(struct ms_aggregate *aggregate, const struct ms_event *event,
                         uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;
    uint64_t *reason = event->aux < MS_CHARGE_REASON_COUNT ? &now->reason_bytes[event->aux] : NULL;

    keep_peak(aggregate);
    if (event->kind == MS_EVENT_DISCHARGE) {
        take(&now->owner_bytes[event->owner], event->bytes);
        if (reason) {
            take(reason, event->bytes);
        }
        aggregate->frees += event->owner == MS_OWNER_FORWARDED;
        return;
    }
    now->owner_bytes[event->owner] += event->bytes;
    if (reason) {
        *reason += event->bytes;
    }
    aggregate->allocations += event->owner == MS_OWNER_FORWARDED;
    note_peak_charged(aggregate, time_ns);
}

static void apply_host(struct ms_aggregate *aggregate, const struct ms_event *event,
                       uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;

    (void)time_ns;
    keep_peak(aggregate);
    if (event->kind == MS_EVENT_HOST_FREE) {
        take(&now->host_pinned_bytes, event->bytes);
        return;
    }
    now->host_pinned_bytes += event->bytes;
    if (now->host_pinned_bytes > aggregate->peak_host_pinned_bytes) {
        aggregate->peak_host_pinned_bytes = now->host_pinned_bytes;
    }
}

static void apply_proxy(struct ms_aggregate *aggregate, const struct ms_event *event,
                        uint64_t time_ns)
{
    (void)time_ns;
    keep_peak(aggregate);
    if (event->kind == MS_EVENT_PROXY_UNMAP) {
        take(&aggregate->now.proxy_bytes, event->bytes);
    } else {
        aggregate->now.proxy_bytes += event->bytes;
    }
}

static void apply_sample(struct ms_aggregate *aggregate, const struct ms_event *event,
                         uint64_t time_ns)
{
    struct ms_counters *now = &aggregate->now;

    (void)time_ns;
    keep_peak(aggregate);
    now->samples++;
    now->sampled_free_bytes = event->bytes;
    now->sampled_others_bytes = event->aux;
    now->sampled_charged_bytes = ms_counters_charged(now);
}

static void apply_move(struct ms_aggregate *aggregate, const struct ms_event *event,
                       uint64_t time_ns)
{
    (void)time_ns;
    if (event->kind == MS_EVENT_SPILL) {
        aggregate->spilled_bytes += event->bytes;
    } else {
        aggregate->promoted_bytes += event->bytes;
    }
    aggregate->held_ns += event->aux;
}

static void apply_use(struct ms_aggregate *aggregate, const struct ms_event *event,
                      uint64_t time_ns)
{
    (void)time_ns;
    aggregate->host_uses += event->aux == 1;
    aggregate->host_use_bytes += event->aux == 1 ? event->bytes : 0;
}

static void apply_map(struct ms_aggregate *aggregate, const struct ms_event *event,
                      uint64_t time_ns)
{
    (void)time_ns;
    switch (event->kind) {
    case MS_EVENT_MAP:
        aggregate->driver_calls[MS_CALL_MAP]++;
        break;
    case MS_EVENT_UNMAP:
        aggregate->driver_calls[MS_CALL_UNMAP]++;
        break;
    default: /* MS_EVENT_SET_ACCESS */
        aggregate->driver_calls[MS_CALL_SET_ACCESS]++;
        break;
    }
}

static void apply_cap(struct ms_aggregate *aggregate, const struct ms_event *event,
                      uint64_t time_ns)
{
    (void)time_ns;
    keep_peak(aggregate);
    aggregate->now.cap_bytes = event->bytes;
    aggregate->now.total_bytes = event->aux;
}

static void apply_threshold(struct ms_aggregate *aggregate, const struct ms_event *event,
                            uint64_t time_ns)
{
    (void)time_ns;
    keep_peak(aggregate);
    aggregate->now.threshold = event->aux;
}

static void apply_nothing(struct ms_aggregate *aggregate, const struct ms_event *event,
                          uint64_t time_ns)
{
    (void)aggregate;
    (void)event;
    (void)time_ns;
}

static inline void count_event(struct ms_aggregate *aggregate, const struct ms_event *event,
                               uint64_t time_ns)
{
    if (aggregate->events == 0) {
        aggregate->first_time_ns = time_ns;
    }
    aggregate->events++;
    aggregate->last_time_ns = time_ns;
    if (event->kind < MS_COUNTED_KINDS) {
        aggregate->kind_events[event->kind]++;
    }
}

/* Whether the event changes live bytes only, and does not make more count as reserved. */
static inline bool changes_live_alone(const struct ms_aggregate *aggregate,
                                      const struct ms_event *event)
{
    switch (event->kind) {
    case MS_EVENT_TENSOR_ALLOC:
        return event->aux != 0 || (aggregate->now.outside & MS_OUTSIDE_TENSORS);
    case MS_EVENT_BLOCK_ALLOC:
        return event->owner != MS_OWNER_APPLICATION || (aggregate->now.outside & MS_OUTSIDE_BLOCKS);
    case MS_EVENT_TENSOR_FREE:
    case MS_EVENT_BLOCK_FREE:
    case MS_EVENT_BLOCK_ARENA:
        return true;
    default:
        return false;
    }
}

/* The most live bytes at which a tensor's allocation raises no peak. */
static uint64_t unnoted_live(const struct ms_aggregate *aggregate)
{
    uint64_t most = aggregate->peak_live.live_bytes;
    const uint64_t tensors_most = aggregate->now.block_bytes + aggregate->peak_tensor_bytes;

    if (ms_counters_reserved(&aggregate->now) == aggregate->peak_reserved.reserved_bytes &&
        aggregate->peak_reserved.live_bytes < most) {
        most = aggregate->peak_reserved.live_bytes;
    }
    return tensors_most < most ? tensors_most : most;
}

/* The fast path for nearly all events: applies the tensors at the beginning of the row, as long as
 * they change live bytes only, and returns how many there are. Sums stay in registers. */
static size_t apply_plain_tensors(struct ms_aggregate *aggregate, const struct ms_timed_event *row,
                                  size_t count, uint64_t *live_bytes)
{
    struct ms_counters *now = &aggregate->now;
    const uint64_t others_bytes = now->block_bytes, most = unnoted_live(aggregate);
    const bool anywhere = now->outside & MS_OUTSIDE_TENSORS;
    const uint8_t device = row->event.device;
    uint64_t live = ms_counters_live(now), tensors = now->tensors, allocated = 0;
    size_t i = 0;

    if (!aggregate->at_peak_saved || aggregate->fresh_id != 0 || aggregate->events == 0 ||
        aggregate->tensor_allocations == 0) {
        return 0;
    }
    for (; i < count; i++) {
        const struct ms_event *event = &row[i].event;
        const uint64_t bytes = event->bytes;

        if (event->device != device) {
            break;
        }
        if (event->kind == MS_EVENT_TENSOR_FREE && bytes <= live - others_bytes && tensors > 0) {
            live -= bytes;
            tensors--;
        } else if (event->kind == MS_EVENT_TENSOR_ALLOC && (event->aux != 0 || anywhere) &&
                   bytes <= most && live <= most - bytes) {
            live += bytes;
            tensors++;
            allocated++;
        } else {
            break;
        }
        live_bytes[i] = live;
    }
    now->tensor_bytes = live - others_bytes;
    now->tensors = tensors;
    aggregate->events += i;
    aggregate->last_time_ns = i > 0 ? row[i - 1].time_ns : aggregate->last_time_ns;
    aggregate->tensor_allocations += allocated;
    aggregate->tensor_frees += i - allocated;
    aggregate->kind_events[MS_EVENT_TENSOR_ALLOC] += allocated;
    aggregate->kind_events[MS_EVENT_TENSOR_FREE] += i - allocated;
    return i;
}

/* Blocks make up rows, too: with what they call inlined (flatten), a row saves registers once. */
__attribute__((flatten)) size_t ms_aggregate_apply_row(struct ms_aggregate *aggregate,
                                                       const struct ms_timed_event *row,
                                                       size_t count, uint64_t *live_bytes)
{
    size_t i = 0;

    while (i < count) {
        const struct ms_event *event = &row[i].event;
        const bool tensor =
            event->kind == MS_EVENT_TENSOR_ALLOC || event->kind == MS_EVENT_TENSOR_FREE;
        const size_t plain =
            tensor && event->device == row[0].event.device
                ? apply_plain_tensors(aggregate, row + i, count - i, live_bytes + i)
                : 0;

        if (plain > 0) {
            i += plain;
            continue;
        }
        if (event->device != row[0].event.device || !changes_live_alone(aggregate, event)) {
            break;
        }
        count_event(aggregate, event, row[i].time_ns);
        if (tensor) {
            apply_tensor(aggregate, event, row[i].time_ns);
        } else {
            apply_block(aggregate, event, row[i].time_ns);
        }
        live_bytes[i++] = drawn_live(aggregate);
    }
    return i;
}

void ms_aggregate_apply(struct ms_aggregate *aggregate, const struct ms_event *event,
                        uint64_t time_ns)
{
    if (event->kind >= MS_EVENT_KIND_COUNT || event->owner >= MS_OWNER_COUNT) {
        return;
    }
    count_event(aggregate, event, time_ns);
    switch (event->kind) {
#define MS_EVENT(number, name, scope, fields, sums) \
    case (number):                                  \
        apply_##sums(aggregate, event, time_ns);    \
        break;
#include "allocator/base/events.def"
#undef MS_EVENT
    default:
        break;
    }
}

void ms_aggregate_oom(struct ms_aggregate *aggregate, bool torch)
{
    if (torch) {
        aggregate->torch_ooms++;
    } else {
        aggregate->failed_allocations++;
    }
}
