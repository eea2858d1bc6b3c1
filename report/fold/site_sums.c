/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by call site: applies each event, and keeps the holders of memory at the peak. */
#include "report/fold/site_sums.h"

#include "allocator/base/arithmetic.h"
#include "report/fold/site_past.h"
#include "report/fold/site_table.h"

/* Null: memory ran out. */
static inline struct site *use_site(struct device *device, uint32_t id)
{
    return id < device->end && device->pages[id / MS_PAGE_SITES]
               ? &device->pages[id / MS_PAGE_SITES][id % MS_PAGE_SITES]
               : ms_site_table_place(device, id);
}

static inline void keep_at(struct site *site, uint64_t epoch)
{
    if (site->kept[epoch & 1].epoch != epoch) {
        site->kept[epoch & 1].epoch = epoch;
        site->kept[epoch & 1].held = site->now;
    }
}

/* To be called before any change of the site's sums. */
static inline void keep(const struct device *device, struct site *site)
{
    keep_at(site, device->peak);
    if (device->candidate) {
        keep_at(site, device->candidate);
    }
}

/* ---- peaks ---- */

/* A new number, even if the peak's is odd and odd if that is even. */
static uint64_t next_epoch(struct device *device)
{
    device->last_epoch++;
    device->last_epoch += ((device->last_epoch ^ device->peak) & 1) == 0;
    return device->last_epoch;
}

/* The newest block is no arena: its peak is final. */
static void settle_fresh(struct device *device)
{
    if (device->fresh_id == 0) {
        return;
    }
    if (device->candidate) {
        device->peak = device->candidate;
        device->peak_bytes = device->candidate_bytes;
        device->candidate = 0;
    }

    struct site *site = use_site(device, device->fresh_site);

    if (site && device->fresh_site_bytes > site->sums.peak_bytes) {
        site->sums.peak_bytes = device->fresh_site_bytes;
    }
    device->fresh_id = 0;
}

static void drop_fresh(struct device *device)
{
    device->fresh_id = 0;
    device->candidate = 0;
}

void ms_site_table_enter(ms_site_table_t *table, uint32_t phase)
{
    table->phase = phase;
}

/* ---- events ---- */

/* What a sampled allocation of so many bytes stands for. */
struct estimate {
    uint64_t bytes;
    uint64_t variance; /* in 2^-32 of the square of the mean, of which it is at most 1 */
};

static struct estimate estimate_of(const struct ms_site_table *table, uint64_t bytes)
{
    if (table->sampling_bytes == 0) {
        return (struct estimate){0};
    }

    const uint64_t chance = ms_sampling_chance(bytes, table->sampling_bytes);
    const uint64_t stands_for = ms_share(bytes, chance, MS_CERTAIN);
    const uint64_t means = ms_share(stands_for, table->sampling_bytes, UINT64_C(1) << 31);
    const uint64_t square = (uint64_t)((unsigned __int128)means * means >> 30);

    return (struct estimate){stands_for, ms_share(square, MS_CERTAIN, MS_CERTAIN - chance)};
}

static void add_estimate(const struct ms_site_table *table, struct held *held, uint64_t bytes)
{
    const struct estimate estimate = estimate_of(table, bytes);

    held->estimate += estimate.bytes;
    held->variance += estimate.variance;
}

static void take_estimate(const struct ms_site_table *table, struct held *held, uint64_t bytes)
{
    const struct estimate estimate = estimate_of(table, bytes);

    ms_sum_take(&held->estimate, estimate.bytes);
    ms_sum_take(&held->variance, estimate.variance);
}

static void note_allocation(struct site *site, uint64_t bytes, uint64_t time_ns)
{
    if (site->sums.allocations == 0) {
        site->sums.first_ns = time_ns;
    }
    site->sums.last_ns = time_ns;
    site->sums.allocations++;
    site->sums.bytes += bytes;
}

static void note_free(struct site *site, const struct ms_live *live, uint64_t time_ns)
{
    site->sums.frees++;
    site->sums.lifetime_ns += time_ns > live->born_ns ? time_ns - live->born_ns : 0;
}

static inline uint32_t site_of(const struct ms_event *event)
{
    return event->site < MS_SITE_LIMIT ? event->site : 0;
}

static void remember(struct ms_site_table *table, const struct ms_event *event, uint64_t key,
                     uint64_t time_ns)
{
    struct ms_live *live = key ? ms_live_add(&table->live, key) : NULL;

    if (live) {
        live->addr = event->addr;
        live->bytes = event->bytes;
        live->born_ns = time_ns;
        live->site = site_of(event);
        live->device = event->device;
        live->born_phase = table->phase;
        live->born_epoch = (uint32_t)table->devices[event->device].last_epoch;
        live->allocation = table->allocations;
        live->captured = event->kind == MS_EVENT_TENSOR_ALLOC &&
                         ms_frozen_has(&table->frozen, event->device, event->addr);
    }
}

/* Removes and returns the memory that the event ends. If its beginning was not seen, it has no
 * site. */
static struct ms_live forget(struct ms_site_table *table, const struct ms_event *event,
                             uint64_t key, uint64_t time_ns)
{
    struct ms_live live;

    if (!ms_live_take(&table->live, key, &live) || live.device != event->device) {
        live = (struct ms_live){.bytes = event->bytes, .born_ns = time_ns, .device = event->device};
    }
    return live;
}

/* The number wraps only in a run for which no reader has memory. */
static inline void count_allocation(struct ms_site_table *table)
{
    char *recorded = ms_buffer_extend(&table->recorded, 1);

    if (recorded) {
        *recorded = (char)MS_RECORDED_NOTHING;
    }
    table->allocations++;
}

/* A block or a tensor begins to be live. */
static struct site *grow(struct ms_site_table *table, struct device *device,
                         const struct ms_event *event, uint64_t time_ns)
{
    struct site *site = use_site(device, site_of(event));

    ms_site_past_judge(table, NULL);
    table->allocation_ns = time_ns;
    table->allocation_site = site_of(event);
    settle_fresh(device);
    device->live_bytes += event->bytes;
    table->phase_blocks++;
    remember(table, event, event->id, time_ns);
    count_allocation(table);
    if (!site) {
        return NULL;
    }
    keep(device, site);
    site->now.bytes += event->bytes;
    site->now.count++;
    add_estimate(table, &site->now, event->bytes);
    if (site->sums.allocations == 0) {
        site->lifetimes.first_phase = table->phase;
    }
    site->lifetimes.last_phase = table->phase;
    note_allocation(site, event->bytes, time_ns);
    return site;
}

static void apply_allocation(struct ms_site_table *table, struct device *device,
                             const struct ms_event *event, uint64_t time_ns)
{
    struct site *site = grow(table, device, event, time_ns);

    if (site && site->now.bytes > site->sums.peak_bytes) {
        site->sums.peak_bytes = site->now.bytes;
    }
    if (device->live_bytes > device->peak_bytes) {
        device->peak_bytes = device->live_bytes;
        device->peak = next_epoch(device);
    }
}

/* Whether a charge is also recorded as a block, and counted as one. */
static bool is_of_block(const struct ms_event *event)
{
    return event->addr != 0 && ms_charge_is_block(event->aux);
}

/* The key of a charge. If a block will follow, the charge waits for it at the address, and belongs
 * to it from then on: another thread may get the address, and be charged for it, before the end of
 * this one is recorded. */
static uint64_t charge_key(const struct ms_event *event)
{
    return event->addr ? FORWARDED_KEY | (is_of_block(event) ? AWAITED_KEY : 0) | event->addr : 0;
}

static uint64_t block_charge_key(const struct ms_event *event)
{
    return FORWARDED_KEY | CLAIMED_KEY | event->id;
}

/* The block, or the tensors in it, count as live now: so its charge must not count beside them. */
static void claim_charge(struct ms_site_table *table, struct device *device,
                         const struct ms_event *event)
{
    struct ms_live charge, *claimed;

    if (event->owner != MS_OWNER_FORWARDED ||
        !ms_live_take(&table->live, FORWARDED_KEY | AWAITED_KEY | event->addr, &charge)) {
        return; /* it lies in a slab that was charged to a neighbour */
    }
    claimed = ms_live_add(&table->live, block_charge_key(event));
    if (claimed) {
        charge.key = claimed->key;
        *claimed = charge;
    }

    struct site *site = use_site(device, charge.site);

    if (site) {
        keep(device, site);
        ms_sum_take(&site->now.forwarded_bytes, charge.bytes);
    }
}

/* The block ends: its charge counts again, until it is discharged. False: it has none. */
static bool return_charge(struct ms_site_table *table, struct device *device,
                          const struct ms_event *event, uint64_t time_ns)
{
    struct ms_live charge;

    if (event->kind != MS_EVENT_BLOCK_FREE || event->owner != MS_OWNER_FORWARDED ||
        !ms_live_take(&table->live, block_charge_key(event), &charge)) {
        return false;
    }

    struct site *site = use_site(device, charge.site);

    if (site) {
        keep(device, site);
        site->now.forwarded_bytes += charge.bytes;
        note_free(site, &charge, time_ns);
    }
    return true;
}

static void apply_alloc(struct ms_site_table *table, struct device *device,
                        const struct ms_event *event, uint64_t time_ns)
{
    claim_charge(table, device, event);

    struct site *site = grow(table, device, event, time_ns);

    device->fresh_id = event->id;
    device->fresh_site = site_of(event);
    device->fresh_site_bytes = site ? site->now.bytes : 0;
    if (device->live_bytes > device->peak_bytes) {
        device->candidate = next_epoch(device);
        device->candidate_bytes = device->live_bytes;
    }
}

/* A block or a tensor stops being live. */
static struct site *shrink(struct ms_site_table *table, struct device *device,
                           const struct ms_live *live)
{
    struct site *site = use_site(device, live->site);

    ms_sum_take(&device->live_bytes, live->bytes);
    if (site) {
        keep(device, site);
        ms_sum_take(&site->now.bytes, live->bytes);
        ms_sum_take(&site->now.count, 1);
        if (live->key) {
            take_estimate(table, &site->now, live->bytes);
        }
    }
    return site;
}

static void apply_free(struct ms_site_table *table, struct device *device,
                       const struct ms_event *event, uint64_t time_ns)
{
    const struct ms_live live = forget(table, event, event->id, time_ns);
    const bool charged = return_charge(table, device, event, time_ns);

    if (event->kind == MS_EVENT_BLOCK_FREE && event->id == device->fresh_id) {
        settle_fresh(device);
    }
    if (event->kind == MS_EVENT_BLOCK_FREE && event->aux == 1) {
        ms_frozen_take(&table->frozen, event->device, event->addr);
        return; /* an arena: its bytes were not live */
    }

    struct site *site = shrink(table, device, &live);

    if (site) {
        if (!charged) { /* otherwise it is counted already, an arena too */
            note_free(site, &live, time_ns);
        }
        if (live.key) {
            ms_site_past_note(table, site, &live, time_ns);
        }
    }
}

/* The block becomes an arena: removes its bytes, as if it had never been a block. */
static void apply_arena(struct ms_site_table *table, struct device *device,
                        const struct ms_event *event, uint64_t time_ns)
{
    const struct ms_live live = forget(table, event, event->id, time_ns);
    struct site *site = shrink(table, device, &live);

    if (live.key) {
        ms_site_record(table, live.allocation, MS_RECORDED_ARENA);
    }
    if (site && live.key && !ms_live_find(&table->live, block_charge_key(event))) {
        ms_sum_take(&site->sums.allocations, 1);
        ms_sum_take(&site->sums.bytes, live.bytes);
    }
    if (event->id == device->fresh_id) {
        drop_fresh(device);
    }
}

/* Whether a charge is only an amount. Charges name their site at both ends. One with neither site
 * nor address records that something of the driver's own grew or shrank: it is no allocation, and
 * its parts do not pair. */
static bool is_amount(const struct ms_event *event)
{
    return event->addr == 0 && event->site == 0;
}

static void apply_charge(struct ms_site_table *table, struct device *device,
                         const struct ms_event *event, uint64_t time_ns)
{
    struct site *site = use_site(device, site_of(event));

    remember(table, event, charge_key(event), time_ns);
    if (!site) {
        return;
    }
    keep(device, site);
    site->now.forwarded_bytes += event->bytes;
    if (!is_amount(event) && !is_of_block(event)) {
        note_allocation(site, event->bytes, time_ns);
    }
}

/* Takes bytes off the site's charge. Bytes that it does not have were charged before a gap, after
 * which all charges have no site. */
static uint64_t take_charge(struct device *device, struct site *site, uint64_t bytes)
{
    const uint64_t held = site ? site->now.forwarded_bytes : 0;
    const uint64_t taken = bytes < held ? bytes : held;

    if (taken > 0) {
        keep(device, site);
        site->now.forwarded_bytes -= taken;
    }
    return bytes - taken;
}

/* Counts one free for each counted charge, though its slabs may go in two parts. */
static void apply_discharge(struct ms_site_table *table, struct device *device,
                            const struct ms_event *event, uint64_t time_ns)
{
    const uint64_t key = is_of_block(event) ? 0 : charge_key(event);
    const struct ms_live live = forget(table, event, key, time_ns);
    const bool counts = event->addr ? live.key != 0 : !is_amount(event);
    struct site *site = use_site(device, site_of(event));
    const uint64_t left = take_charge(device, site, event->bytes);

    if (left > 0) {
        (void)take_charge(device, use_site(device, 0), left);
    }
    if (site && counts) {
        note_free(site, &live, time_ns);
    }
}

static void apply_host(struct ms_site_table *table, struct device *device,
                       const struct ms_event *event, uint64_t time_ns)
{
    const uint64_t key = PINNED_KEY | event->addr;

    if (event->kind == MS_EVENT_HOST_FREE) {
        const struct ms_live live = forget(table, event, key, time_ns);
        struct site *site = use_site(device, live.site);

        if (site) {
            ms_sum_take(&site->sums.pinned_bytes, live.bytes);
        }
        return;
    }

    struct site *site = use_site(device, site_of(event));

    remember(table, event, key, time_ns);
    if (site) {
        site->sums.pinned_bytes += event->bytes;
        if (site->sums.pinned_bytes > site->sums.pinned_peak_bytes) {
            site->sums.pinned_peak_bytes = site->sums.pinned_bytes;
        }
    }
}

/* ---- moves to host memory and back ---- */

/* Attributes the moves to memory that was live while they were recorded; called before that
 * changes. */
static void settle_moves(struct ms_site_table *table)
{
    if (ms_moves_count(&table->moves) == 0) {
        return;
    }
    ms_moves_sort(&table->moves);
    for (size_t i = 0; i < ms_live_room(&table->live); i++) {
        const struct ms_live *live = ms_live_at(&table->live, i);
        struct ms_site_moved moved = {0};

        if (live->key != 0 && live->key < PINNED_KEY) {
            moved = ms_moves_of(&table->moves, live->device, live->addr, live->bytes);
        }
        if (moved.down_bytes + moved.up_bytes > 0) {
            struct site *site =
                use_site(&table->devices[live->device & (MS_DEVICE_COUNT - 1)], live->site);

            if (site) {
                site->sums.spilled_bytes += moved.down_bytes;
                site->sums.promoted_bytes += moved.up_bytes;
                site->sums.spilled_blocks += moved.down_bytes > 0;
            }
        }
    }
    ms_moves_free(&table->moves);
}

static bool changes_what_lives(const struct ms_event *event)
{
    return event->kind >= MS_EVENT_BLOCK_ALLOC && event->kind <= MS_EVENT_TENSOR_FREE;
}

void ms_site_table_apply(ms_site_table_t *table, const struct ms_event *event, uint64_t time_ns)
{
    struct device *device = &table->devices[event->device & (MS_DEVICE_COUNT - 1)];

    if (changes_what_lives(event)) {
        settle_moves(table);
    }
    switch (event->kind) {
    case MS_EVENT_TENSOR_ALLOC:
        apply_allocation(table, device, event, time_ns);
        break;
    case MS_EVENT_TENSOR_FREE:
    case MS_EVENT_BLOCK_FREE:
        apply_free(table, device, event, time_ns);
        break;
    case MS_EVENT_BLOCK_ALLOC:
        apply_alloc(table, device, event, time_ns);
        break;
    case MS_EVENT_BLOCK_ARENA:
        apply_arena(table, device, event, time_ns);
        break;
    case MS_EVENT_CHARGE:
        if (event->owner == MS_OWNER_FORWARDED) {
            apply_charge(table, device, event, time_ns);
        }
        break;
    case MS_EVENT_DISCHARGE:
        if (event->owner == MS_OWNER_FORWARDED) {
            apply_discharge(table, device, event, time_ns);
        }
        break;
    case MS_EVENT_HOST_ALLOC:
    case MS_EVENT_HOST_FREE:
        apply_host(table, device, event, time_ns);
        break;
    case MS_EVENT_ARENA_FROZEN:
        ms_frozen_add(&table->frozen, event);
        break;
    case MS_EVENT_SPILL:
    case MS_EVENT_PROMOTE:
        ms_moves_add(&table->moves, event);
        break;
    default:
        break;
    }
}

/* ---- gaps ---- */

static struct held all_of(const struct ms_counters *counters)
{
    struct held held = {.bytes = ms_counters_live(counters),
                        .count = counters->blocks + counters->tensors,
                        .forwarded_bytes = counters->owner_bytes[MS_OWNER_FORWARDED]};

    ms_sum_take(&held.forwarded_bytes, counters->forwarded_block_bytes);
    return held;
}

/* Gives all that was live at the epoch to site 0: the sites are unknown. */
static void set_unknown(struct device *device, uint64_t epoch, const struct ms_counters *counters)
{
    for (uint32_t id = 0; id < device->end; id = ms_site_after(device, id)) {
        struct site *site = ms_site_table_find(device, id);

        if (site) {
            site->kept[epoch & 1].epoch = epoch;
            site->kept[epoch & 1].held = id == 0 ? all_of(counters) : (struct held){0};
        }
    }
}

/* Gives all that is live from here on to site 0. */
static void set_now(struct device *device, const struct ms_counters *counters)
{
    for (uint32_t id = 0; id < device->end; id = ms_site_after(device, id)) {
        struct site *site = ms_site_table_find(device, id);

        if (site) {
            keep(device, site);
            site->now = id == 0 ? all_of(counters) : (struct held){0};
            site->sums.pinned_bytes = id == 0 ? counters->host_pinned_bytes : 0;
        }
    }
    device->live_bytes = ms_counters_live(counters);
}

static void set_fresh(struct device *device, const struct ms_aggregate *sums)
{
    device->fresh_id = sums->fresh_id;
    device->fresh_site = 0;
    device->fresh_site_bytes = 0;
    if (sums->fresh_peak.live_bytes > sums->peak_live.live_bytes) {
        device->candidate = next_epoch(device);
        device->candidate_bytes = sums->fresh_peak.live_bytes;
        set_unknown(device, device->candidate, &sums->fresh_at_peak);
    }
}

void ms_site_table_rebase(ms_site_table_t *table, uint8_t index, const struct ms_aggregate *sums)
{
    struct device *device = &table->devices[index & (MS_DEVICE_COUNT - 1)];

    if (!use_site(device, 0)) {
        return;
    }
    settle_fresh(device);
    settle_moves(table);
    ms_frozen_free(&table->frozen); /* arenas may have come and gone meanwhile */
    ms_live_forget(&table->live, index);
    set_now(device, &sums->now);
    if (device->peak_bytes != sums->peak_live.live_bytes) {
        device->peak_bytes = sums->peak_live.live_bytes;
        device->peak = next_epoch(device);
        set_unknown(device, device->peak, sums->at_peak_saved ? &sums->at_peak : &sums->now);
    }
    set_fresh(device, sums);
}

/* ---- the end ---- */

void ms_site_table_finish(ms_site_table_t *table, const struct ms_run_end *end)
{
    settle_moves(table);
    ms_site_past_judge(table, end);
    for (size_t i = 0; i < ms_live_room(&table->live); i++) {
        const struct ms_live *live = ms_live_at(&table->live, i);
        const bool is_block = live->key && !(live->key & (FORWARDED_KEY | PINNED_KEY));
        struct site *site =
            is_block ? ms_site_table_find(&table->devices[live->device], live->site) : NULL;

        if (site) {
            ms_site_past_live(table, site, live, end);
        }
    }
}
