/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by site, against the aggregate and against a model that knows how the story ends. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "report/fold/site_sums.h"
#include "synthetic.h"

enum { SITES = 7, IDS = 24, DEVICES = 2, EVENTS = 6000, SEEDS = 40 };

static struct ms_event stream[EVENTS];

/* ---- random streams ---- */

struct writing {
    struct ms_event live[IDS]; /* as it was born; kind 0: none */
    bool arena[IDS];
    uint64_t next_id;
    uint64_t random;
};

static uint64_t draw(struct writing *writing, uint64_t below)
{
    return synthetic_random(&writing->random) % below;
}

/* Ever larger, so that there are new peaks to the end. */
static struct ms_event allocation(struct writing *writing, size_t slot, size_t when)
{
    static const uint8_t kinds[] = {MS_EVENT_TENSOR_ALLOC, MS_EVENT_TENSOR_ALLOC,
                                    MS_EVENT_BLOCK_ALLOC,  MS_EVENT_BLOCK_ALLOC,
                                    MS_EVENT_CHARGE,       MS_EVENT_HOST_ALLOC};
    struct ms_event event = {.kind = kinds[draw(writing, 6)],
                             .device = (uint8_t)(draw(writing, 4) == 0),
                             .site = (uint32_t)draw(writing, SITES),
                             .addr = 512 * (slot + 1),
                             .bytes = 1 + when / 2 + draw(writing, 1000)};

    event.owner = event.kind == MS_EVENT_CHARGE ? MS_OWNER_FORWARDED : MS_OWNER_POOL;
    event.aux = event.kind == MS_EVENT_CHARGE ? MS_CHARGE_NCCL : 0; /* no block follows */
    if (event.kind == MS_EVENT_TENSOR_ALLOC || event.kind == MS_EVENT_BLOCK_ALLOC) {
        event.id = ++writing->next_id;
    }
    writing->live[slot] = event;
    writing->arena[slot] = false;
    return event;
}

static struct ms_event death(struct writing *writing, size_t slot)
{
    static const uint8_t deaths[MS_EVENT_KIND_COUNT] = {
        [MS_EVENT_TENSOR_ALLOC] = MS_EVENT_TENSOR_FREE,
        [MS_EVENT_BLOCK_ALLOC] = MS_EVENT_BLOCK_FREE,
        [MS_EVENT_CHARGE] = MS_EVENT_DISCHARGE,
        [MS_EVENT_HOST_ALLOC] = MS_EVENT_HOST_FREE};
    struct ms_event event = writing->live[slot];

    event.kind = deaths[event.kind];
    event.site = event.kind == MS_EVENT_DISCHARGE ? event.site : 0;
    event.aux = event.kind == MS_EVENT_DISCHARGE ? event.aux : writing->arena[slot];
    writing->live[slot].kind = MS_EVENT_NONE;
    return event;
}

static void write_stream(uint64_t seed)
{
    struct writing writing = {.random = seed};
    size_t slot = 0;

    for (size_t i = 0; i < EVENTS; i++) {
        /* Often the same again: blocks then become arenas at once. */
        slot = draw(&writing, 3) ? draw(&writing, IDS) : slot;

        const struct ms_event *live = &writing.live[slot];

        if (live->kind == MS_EVENT_NONE) {
            stream[i] = allocation(&writing, slot, i);
        } else if (live->kind == MS_EVENT_BLOCK_ALLOC && !writing.arena[slot] &&
                   draw(&writing, 2)) {
            writing.arena[slot] = true;
            stream[i] = *live;
            stream[i].kind = MS_EVENT_BLOCK_ARENA;
            stream[i].site = 0;
        } else {
            stream[i] = death(&writing, slot);
        }
    }
}

/* ---- the model: recounts everything after every event ---- */

struct plain {
    uint64_t live[SITES], forwarded[SITES];
    uint64_t at_peak[SITES], forwarded_at_peak[SITES], peak[SITES];
    uint64_t allocations[SITES], frees[SITES], bytes[SITES], lifetime[SITES];
    uint64_t pinned[SITES], pinned_peak[SITES];
    uint64_t device_peak;
};

/* Whether the block of event i becomes an arena before anything else is born on its device: then
 * its bytes never were live. */
static bool is_arena_to_be(size_t i, size_t end)
{
    for (size_t k = i + 1; k < end; k++) {
        const struct ms_event *later = &stream[k];

        if (later->device != stream[i].device) {
            continue;
        }
        if (later->kind == MS_EVENT_BLOCK_ARENA && later->id == stream[i].id) {
            return true;
        }
        if (later->kind == MS_EVENT_TENSOR_ALLOC || later->kind == MS_EVENT_BLOCK_ALLOC) {
            return false;
        }
    }
    return false;
}

static const struct ms_event *allocation_of(size_t death, size_t *when)
{
    const struct ms_event *event = &stream[death];

    for (size_t k = death; k-- > 0;) {
        const struct ms_event *earlier = &stream[k];
        const bool begins =
            earlier->kind == MS_EVENT_TENSOR_ALLOC || earlier->kind == MS_EVENT_BLOCK_ALLOC ||
            earlier->kind == MS_EVENT_CHARGE || earlier->kind == MS_EVENT_HOST_ALLOC;

        if (begins && earlier->addr == event->addr) {
            *when = k;
            return earlier;
        }
    }
    cr_assert_fail("every death has a birth");
    return NULL;
}

static void note_peaks(struct plain *plain)
{
    uint64_t live = 0;

    for (int site = 0; site < SITES; site++) {
        live += plain->live[site];
        plain->peak[site] =
            plain->live[site] > plain->peak[site] ? plain->live[site] : plain->peak[site];
    }
    if (live > plain->device_peak) {
        plain->device_peak = live;
        memcpy(plain->at_peak, plain->live, sizeof(plain->live));
        memcpy(plain->forwarded_at_peak, plain->forwarded, sizeof(plain->forwarded));
    }
}

static void begin_one(struct plain *plain, size_t i, size_t end)
{
    const struct ms_event *event = &stream[i];
    uint64_t *held = event->kind == MS_EVENT_CHARGE ? plain->forwarded : plain->live;

    if (event->kind == MS_EVENT_HOST_ALLOC) {
        plain->pinned[event->site] += event->bytes;
        if (plain->pinned[event->site] > plain->pinned_peak[event->site]) {
            plain->pinned_peak[event->site] = plain->pinned[event->site];
        }
        return;
    }
    if (event->kind == MS_EVENT_BLOCK_ALLOC && is_arena_to_be(i, end)) {
        return;
    }
    held[event->site] += event->bytes;
    plain->allocations[event->site]++;
    plain->bytes[event->site] += event->bytes;
    if (event->kind != MS_EVENT_CHARGE) {
        note_peaks(plain);
    }
}

static void end_one(struct plain *plain, size_t i, size_t end)
{
    const struct ms_event *event = &stream[i];
    size_t when;
    const struct ms_event *allocation = allocation_of(i, &when);
    uint64_t *held = event->kind == MS_EVENT_DISCHARGE ? plain->forwarded : plain->live;

    if (event->kind == MS_EVENT_HOST_FREE) {
        plain->pinned[allocation->site] -= event->bytes;
    } else if (event->kind == MS_EVENT_BLOCK_ARENA && is_arena_to_be(when, end)) {
        return;
    } else if (!(event->kind == MS_EVENT_BLOCK_FREE && event->aux == 1)) {
        held[allocation->site] -= event->bytes;
        if (event->kind == MS_EVENT_BLOCK_ARENA) {
            plain->allocations[allocation->site]--;
            plain->bytes[allocation->site] -= event->bytes;
        } else {
            plain->frees[allocation->site]++;
            plain->lifetime[allocation->site] += (i - when) * 10;
        }
    }
}

static struct plain recount(uint8_t device, size_t end)
{
    struct plain plain = {.device_peak = 0};

    for (size_t i = 0; i < end; i++) {
        if (stream[i].device != device) {
            continue;
        }
        switch (stream[i].kind) {
        case MS_EVENT_TENSOR_ALLOC:
        case MS_EVENT_BLOCK_ALLOC:
        case MS_EVENT_CHARGE:
        case MS_EVENT_HOST_ALLOC:
            begin_one(&plain, i, end);
            break;
        default:
            end_one(&plain, i, end);
            break;
        }
    }
    return plain;
}

static void expect_plain(const ms_site_table_t *table, uint8_t device, size_t end)
{
    const struct plain plain = recount(device, end);

    for (uint32_t site = 0; site < SITES; site++) {
        struct ms_site_sums sums = {0};

        (void)ms_site_table_read(table, device, site, &sums);
        cr_assert_eq(sums.live_bytes, plain.live[site]);
        cr_assert_eq(sums.at_peak_bytes, plain.at_peak[site], "event %zu, site %u: %lu, not %lu",
                     end, site, sums.at_peak_bytes, plain.at_peak[site]);
        cr_assert_eq(sums.peak_bytes, plain.peak[site], "event %zu, site %u: %lu, not %lu", end,
                     site, sums.peak_bytes, plain.peak[site]);
        cr_assert_eq(sums.allocations, plain.allocations[site]);
        cr_assert_eq(sums.frees, plain.frees[site]);
        cr_assert_eq(sums.bytes, plain.bytes[site]);
        cr_assert_eq(sums.lifetime_ns, plain.lifetime[site]);
        cr_assert_eq(sums.forwarded_bytes, plain.forwarded[site]);
        cr_assert_eq(sums.forwarded_at_peak_bytes, plain.forwarded_at_peak[site]);
        cr_assert_eq(sums.pinned_bytes, plain.pinned[site]);
        cr_assert_eq(sums.pinned_peak_bytes, plain.pinned_peak[site]);
    }
}

/* ---- */

static struct ms_site_sums total(const ms_site_table_t *table, uint8_t device)
{
    struct ms_site_sums all = {0}, sums;

    for (uint32_t site = 0; site < ms_site_table_end(table, device); site++) {
        if (ms_site_table_read(table, device, site, &sums)) {
            all.live_bytes += sums.live_bytes;
            all.at_peak_bytes += sums.at_peak_bytes;
            all.forwarded_bytes += sums.forwarded_bytes;
            all.forwarded_at_peak_bytes += sums.forwarded_at_peak_bytes;
            all.pinned_bytes += sums.pinned_bytes;
        }
    }
    return all;
}

static void expect_aggregate(const ms_site_table_t *table, uint8_t device,
                             const struct ms_aggregate *sums)
{
    const struct ms_site_sums all = total(table, device);
    const struct ms_counters *at_peak = ms_aggregate_at_peak(sums);

    cr_assert_eq(all.live_bytes, ms_counters_live(&sums->now));
    cr_assert_eq(all.at_peak_bytes, ms_aggregate_peak_live(sums).live_bytes);
    cr_assert_eq(all.forwarded_bytes, sums->now.owner_bytes[MS_OWNER_FORWARDED]);
    cr_assert_eq(all.forwarded_at_peak_bytes, at_peak->owner_bytes[MS_OWNER_FORWARDED]);
    cr_assert_eq(all.pinned_bytes, sums->now.host_pinned_bytes);
}

Test(site_sums, random_streams_against_a_recount_and_the_aggregate, .timeout = 600)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct ms_aggregate sums[DEVICES];
        ms_site_table_t *table = ms_site_table_new();

        memset(sums, 0, sizeof(sums));
        write_stream(seed * 0x9e3779b97f4a7c15u);
        for (size_t i = 0; i < EVENTS; i++) {
            const uint8_t device = stream[i].device;

            ms_site_table_apply(table, &stream[i], i * 10);
            ms_aggregate_apply(&sums[device], &stream[i], i * 10);
            expect_aggregate(table, device, &sums[device]);
            if (i < 400 || i % 997 == 0) {
                expect_plain(table, device, i + 1);
            }
        }
        ms_site_table_delete(table);
    }
}

/* Records are missing: the sums that are told instead are believed, and still add up from then on,
 * wherever the gap was. */
Test(site_sums, after_a_gap_the_sums_still_add_up, .timeout = 600)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        static struct ms_aggregate sums;
        uint64_t random = seed * 77;
        const size_t gap = synthetic_random(&random) % 600;
        const size_t end = gap + synthetic_random(&random) % 200;
        ms_site_table_t *table = ms_site_table_new();

        memset(&sums, 0, sizeof(sums));
        write_stream(seed * 0x9e3779b97f4a7c15u);
        for (size_t i = 0; i < 2000; i++) {
            if (stream[i].device != 0) {
                continue;
            }
            ms_aggregate_apply(&sums, &stream[i], i * 10);
            if (i >= gap && i < end) {
                ms_site_table_rebase(table, 0, &sums);
            } else {
                ms_site_table_apply(table, &stream[i], i * 10);
            }
            expect_aggregate(table, 0, &sums);
        }
        ms_site_table_delete(table);
    }
}

/* The peak was before the gap: it keeps its sites. */
Test(site_sums, a_peak_that_was_seen_keeps_its_sites)
{
    ms_site_table_t *table = ms_site_table_new();
    struct ms_aggregate sums = {0};
    struct ms_site_sums read;
    const struct ms_event events[] = {
        {.kind = MS_EVENT_TENSOR_ALLOC, .id = 1, .bytes = 700, .site = 3},
        {.kind = MS_EVENT_TENSOR_ALLOC, .id = 2, .bytes = 300, .site = 4},
        {.kind = MS_EVENT_TENSOR_FREE, .id = 1, .bytes = 700},
    };

    for (uint64_t i = 0; i < 3; i++) {
        ms_site_table_apply(table, &events[i], i);
        ms_aggregate_apply(&sums, &events[i], i);
    }
    ms_site_table_rebase(table, 0, &sums);
    cr_assert(ms_site_table_read(table, 0, 3, &read));
    cr_assert_eq(read.at_peak_bytes, 700);
    cr_assert_eq(read.live_bytes, 0);
    cr_assert(ms_site_table_read(table, 0, 0, &read));
    cr_assert_eq(read.at_peak_bytes, 0);
    cr_assert_eq(read.live_bytes, 300, "nobody knows any more whose they are");
    ms_site_table_delete(table);
}

Test(site_sums, sites_without_bounds_are_unknown)
{
    ms_site_table_t *table = ms_site_table_new();
    const struct ms_event events[] = {
        {.kind = MS_EVENT_TENSOR_ALLOC, .id = 1, .bytes = 1, .site = UINT32_MAX},
        {.kind = MS_EVENT_TENSOR_ALLOC, .id = 2, .bytes = 2, .site = MS_SITE_LIMIT},
        {.kind = MS_EVENT_TENSOR_ALLOC, .id = 3, .bytes = 4, .site = MS_SITE_LIMIT - 1}};
    struct ms_site_sums read;

    for (int i = 0; i < 3; i++) {
        ms_site_table_apply(table, &events[i], 0);
    }
    cr_assert_eq(ms_site_table_end(table, 0), MS_SITE_LIMIT);
    cr_assert(ms_site_table_read(table, 0, 0, &read));
    cr_assert_eq(read.live_bytes, 3);
    cr_assert(ms_site_table_read(table, 0, MS_SITE_LIMIT - 1, &read));
    cr_assert_eq(read.live_bytes, 4);
    cr_assert_not(ms_site_table_read(table, 0, 5, &read));
    ms_site_table_delete(table);
}

Test(site_sums, chance_of_a_sample)
{
    cr_assert_eq(ms_sampling_chance(5, 0), MS_CERTAIN, "no sampling: everything is told");
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 50; bytes = bytes * 3 + 1) {
        const double chance = (double)ms_sampling_chance(bytes, 1 << 20) / MS_CERTAIN;
        const double expected = -expm1(-(double)bytes / (1 << 20));

        cr_assert_float_eq(chance / expected, 1, 1e-9, "%lu: %g %g", bytes, chance, expected);
    }
}

/* The estimate is unbiased, and errs as much as it says. */
Test(site_sums, sampled_bytes_are_estimated)
{
    enum { RUNS = 400, TENSORS = 300, MEAN = 4096 };
    uint64_t random = 11;
    double sum = 0, squares = 0, variance = 0;
    uint64_t truth = 0;

    for (int run = 0; run < RUNS; run++) {
        ms_site_table_t *table = ms_site_table_new();
        struct ms_site_sums read = {0};

        truth = 0;
        ms_site_table_sample(table, MEAN);
        for (uint64_t i = 0; i < TENSORS; i++) {
            const uint64_t bytes = 512 * (1 + i % 32);
            const double luck = (double)(synthetic_random(&random) >> 11) / 9007199254740992.0;
            const bool sampled = luck < -expm1(-(double)bytes / MEAN);
            const struct ms_event born = {.kind = MS_EVENT_TENSOR_ALLOC,
                                          .id = i + 1,
                                          .bytes = bytes,
                                          .site = sampled ? 1 : 2};

            truth += bytes;
            ms_site_table_apply(table, &born, i);
        }
        cr_assert(ms_site_table_read(table, 0, 1, &read));
        const double error = (double)read.estimated_at_peak_bytes - (double)truth;
        sum += (double)read.estimated_at_peak_bytes;
        squares += error * error;
        variance += (double)read.estimated_at_peak_variance / 0x1p32 * MEAN * MEAN;
        ms_site_table_delete(table);
    }
    cr_assert_float_eq(sum / RUNS / (double)truth, 1, 0.01, "unbiased: %g", sum / RUNS);
    cr_assert_float_eq(squares / variance, 1, 0.2, "the error is as large as it claims: %g",
                       squares / variance);
}

static struct ms_site_sums after(ms_site_table_t *table, enum ms_event_kind kind, uint64_t aux)
{
    const struct ms_event event = {.kind = (uint8_t)kind,
                                   .owner = MS_OWNER_FORWARDED,
                                   .site = 1,
                                   .id = kind == MS_EVENT_CHARGE || kind == MS_EVENT_DISCHARGE ? 0
                                                                                               : 7,
                                   .addr = 4096,
                                   .bytes = 100,
                                   .aux = aux};
    struct ms_site_sums sums = {0};

    ms_site_table_apply(table, &event, 1000);
    (void)ms_site_table_read(table, 0, 1, &sums);
    return sums;
}

/* The driver tells a block that it serves twice: what it charges, and that it is live. */
Test(site_sums, a_block_that_the_driver_served_counts_once)
{
    ms_site_table_t *table = ms_site_table_new();
    struct ms_site_sums sums;

    cr_assert_eq(after(table, MS_EVENT_CHARGE, 0).forwarded_bytes, 100);
    sums = after(table, MS_EVENT_BLOCK_ALLOC, 100);
    cr_assert_eq(sums.live_bytes, 100);
    cr_assert_eq(sums.forwarded_bytes, 0);
    cr_assert_eq(sums.allocations, 1);
    cr_assert_eq(sums.bytes, 100);
    sums = after(table, MS_EVENT_BLOCK_FREE, 0);
    cr_assert_eq(sums.live_bytes, 0);
    cr_assert_eq(sums.forwarded_bytes, 100);
    sums = after(table, MS_EVENT_DISCHARGE, 0);
    cr_assert_eq(sums.forwarded_bytes, 0);
    cr_assert_eq(sums.frees, 1);
    cr_assert_eq(sums.at_peak_bytes, 100);
    cr_assert_eq(sums.forwarded_at_peak_bytes, 0);
    ms_site_table_delete(table);
}

/* What lies in an arena is its tensors': it does not stand beside them. */
Test(site_sums, an_arena_that_the_driver_served_is_no_more_than_its_tensors)
{
    ms_site_table_t *table = ms_site_table_new();
    struct ms_site_sums sums;

    (void)after(table, MS_EVENT_CHARGE, 0);
    (void)after(table, MS_EVENT_BLOCK_ALLOC, 100);
    sums = after(table, MS_EVENT_BLOCK_ARENA, 0);
    cr_assert_eq(sums.live_bytes, 0);
    cr_assert_eq(sums.forwarded_bytes, 0);
    cr_assert_eq(sums.allocations, 1);
    cr_assert_eq(after(table, MS_EVENT_BLOCK_FREE, 1).forwarded_bytes, 100);
    sums = after(table, MS_EVENT_DISCHARGE, 0);
    cr_assert_eq(sums.forwarded_bytes, 0);
    cr_assert_eq(sums.frees, 1);
    ms_site_table_delete(table);
}

static void apply_forwarded(ms_site_table_t *table, struct ms_event event, uint64_t time_ns)
{
    event.owner = MS_OWNER_FORWARDED;
    ms_site_table_apply(table, &event, time_ns);
}

/* The driver frees a block before that is told, and its address is another thread's by then. */
Test(site_sums, an_address_that_was_handed_on_keeps_both_accounts_apart)
{
    static const struct ms_event told[] = {
        {.kind = MS_EVENT_CHARGE, .site = 3, .addr = 0x1000, .bytes = 160},
        {.kind = MS_EVENT_BLOCK_ALLOC, .id = 1, .site = 3, .addr = 0x1000, .bytes = 150},
        {.kind = MS_EVENT_BLOCK_FREE, .id = 1, .addr = 0x1000, .bytes = 150},
        {.kind = MS_EVENT_CHARGE, .site = 4, .addr = 0x1000, .bytes = 40},
        {.kind = MS_EVENT_DISCHARGE, .site = 3, .addr = 0x1000, .bytes = 160},
        {.kind = MS_EVENT_BLOCK_ALLOC, .id = 2, .site = 4, .addr = 0x1000, .bytes = 30},
        {.kind = MS_EVENT_BLOCK_FREE, .id = 2, .addr = 0x1000, .bytes = 30},
        {.kind = MS_EVENT_DISCHARGE, .site = 4, .addr = 0x1000, .bytes = 40},
    };
    static const uint64_t beside[] = {0, 0, 0, 40, 40, 0, 40, 0}; /* at the second site */
    ms_site_table_t *table = ms_site_table_new();
    struct ms_site_sums sums = {0};

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        apply_forwarded(table, told[i], i);
        (void)ms_site_table_read(table, 0, 4, &sums);
        cr_assert_eq(sums.forwarded_bytes, beside[i], "%zu", i);
    }
    cr_assert_eq(sums.allocations, 1);
    cr_assert_eq(sums.frees, 1);
    (void)ms_site_table_read(table, 0, 3, &sums);
    cr_assert_eq(sums.forwarded_bytes, 0);
    cr_assert_eq(sums.allocations, 1);
    cr_assert_eq(sums.frees, 1);
    cr_assert(!ms_site_table_read(table, 0, 0, &sums), "a free without an allocation");
    ms_site_table_delete(table);
}

/* What the driver's pools hold more or less is no allocation: one growth may go in two parts. */
Test(site_sums, what_the_drivers_pools_hold_is_an_amount)
{
    static const struct ms_event told[] = {
        {.kind = MS_EVENT_CHARGE, .bytes = 64},
        {.kind = MS_EVENT_DISCHARGE, .bytes = 32},
        {.kind = MS_EVENT_DISCHARGE, .bytes = 32},
    };
    static const uint64_t left[] = {64, 32, 0};
    ms_site_table_t *table = ms_site_table_new();
    struct ms_site_sums sums = {0};

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        apply_forwarded(table, told[i], i);
        if (ms_site_table_read(table, 0, 0, &sums)) {
            cr_assert_eq(sums.forwarded_bytes, left[i]);
        }
        cr_assert_eq(sums.allocations, 0);
        cr_assert_eq(sums.frees, 0);
    }
    ms_site_table_delete(table);
}
