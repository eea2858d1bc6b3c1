/* SPDX-License-Identifier: Apache-2.0 */
/* Stores and loads the table of call sites. */
#include <string.h>

#include "report/fold/site_table.h"
#include "report/trace/words.h"

#define MOST_RANGES (1u << 20)

void ms_site_table_hush(ms_site_table_t *table)
{
    table->recorded_first = table->allocations;
    table->recorded.bytes = 0;
}

/* ---- storing ---- */

static bool is_nothing(const struct site *site)
{
    static const struct site nothing;

    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): as its page was made */
    return memcmp(site, &nothing, sizeof(nothing)) == 0;
}

static void store_device(const struct device *device, struct ms_buffer *out)
{
    struct device plain = *device;

    plain.pages = NULL;
    ms_words_put_bytes(out, &plain, sizeof(plain));
    for (uint32_t id = 0; id < device->end; id = ms_site_after(device, id)) {
        const struct site *page = device->pages[id / MS_PAGE_SITES];

        if (page && !is_nothing(&page[id % MS_PAGE_SITES])) {
            ms_words_put(out, (uint64_t)id + 1);
            ms_words_put_bytes(out, &page[id % MS_PAGE_SITES], sizeof(*page));
        }
    }
    ms_words_put(out, 0);
}

static void store_live(const struct ms_live_set *live, struct ms_buffer *out)
{
    ms_words_put(out, live->table.used);
    for (size_t i = 0; i < ms_live_room(live); i++) {
        if (ms_live_at(live, i)->key != 0) {
            ms_words_put_bytes(out, ms_live_at(live, i), sizeof(struct ms_live));
        }
    }
}

static void store_past(const struct ms_buffer *past, struct ms_buffer *out)
{
    const struct ms_past *all = (const struct ms_past *)past->at;
    const size_t count = past->bytes / sizeof(*all);

    ms_words_put(out, count);
    for (size_t i = 0; i < count; i++) {
        struct ms_past plain = all[i];

        plain.lifetimes = NULL;
        ms_words_put(out, (uint64_t)plain.site + 1);
        ms_words_put_bytes(out, &plain, sizeof(plain));
    }
}

void ms_site_table_store(const ms_site_table_t *table, struct ms_buffer *out)
{
    const uint64_t sums[] = {table->sampling_bytes, table->phase,     table->past_phase,
                             table->phase_blocks,   table->most_left, table->allocation_ns,
                             table->allocation_site};

    for (uint64_t i = 0; i < MS_DEVICE_COUNT; i++) {
        if (table->devices[i].end > 0) {
            ms_words_put(out, i + 1);
            store_device(&table->devices[i], out);
        }
    }
    ms_words_put(out, 0);
    ms_words_put_bytes(out, sums, sizeof(sums));
    store_live(&table->live, out);
    store_past(&table->past, out);
    ms_words_put_buffer(out, &table->outlived, sizeof(uint64_t));
    ms_words_put_buffer(out, &table->moves.ranges, MS_MOVES_RANGE_BYTES);
    ms_words_put_buffer(out, &table->frozen.ranges, MS_FROZEN_RANGE_BYTES);
}

/* ---- loading ---- */

static bool load_site(struct device *device, uint32_t id, struct ms_words_in *in)
{
    struct site *site = ms_site_table_place(device, id);

    if (site) {
        ms_words_get_bytes(in, site, sizeof(*site));
    }
    return site != NULL;
}

static bool load_device(struct device *device, struct ms_words_in *in)
{
    struct device read;

    ms_words_get_bytes(in, &read, sizeof(read));
    if (device->pages || read.fresh_site >= MS_SITE_LIMIT) {
        return false;
    }
    read.pages = NULL;
    read.end = 0;
    *device = read;
    for (uint64_t id; (id = ms_words_get_most(in, MS_SITE_LIMIT)) != 0;) {
        if (!load_site(device, (uint32_t)id - 1, in)) {
            return false;
        }
    }
    return !in->failed;
}

static bool load_live(ms_site_table_t *table, struct ms_words_in *in)
{
    for (uint64_t left = ms_words_get_most(in, UINT32_MAX); left > 0; left--) {
        struct ms_live read, *live;

        ms_words_get_bytes(in, &read, sizeof(read));
        if (in->failed || read.key == 0 || read.site >= MS_SITE_LIMIT ||
            read.device >= MS_DEVICE_COUNT || !(live = ms_live_add(&table->live, read.key))) {
            return false;
        }
        read.allocation = UINT32_MAX;
        if (read.key < PINNED_KEY) {
            char *recorded = ms_buffer_extend(&table->recorded, 1);

            if (!recorded) {
                return false;
            }
            *recorded = (char)MS_RECORDED_NOTHING;
            read.allocation = table->allocations++;
        }
        *live = read;
    }
    return true;
}

static bool load_past(ms_site_table_t *table, struct ms_words_in *in)
{
    for (uint64_t left = ms_words_get_most(in, UINT32_MAX); left > 0; left--) {
        const uint64_t id = ms_words_get_most(in, MS_SITE_LIMIT);
        struct ms_past read, *past;

        ms_words_get_bytes(in, &read, sizeof(read));
        if (in->failed || id == 0 || read.device >= MS_DEVICE_COUNT) {
            return false;
        }

        struct site *site = ms_site_table_place(&table->devices[read.device], (uint32_t)id - 1);

        past = site ? ms_buffer_extend(&table->past, sizeof(*past)) : NULL;
        if (!past) {
            return false;
        }
        *past = read;
        past->site = (uint32_t)id - 1;
        past->lifetimes = &site->lifetimes;
        past->allocation = UINT32_MAX;
    }
    return true;
}

bool ms_site_table_load(ms_site_table_t *table, struct ms_words_in *in)
{
    uint64_t sums[7];

    for (uint64_t i; (i = ms_words_get_most(in, MS_DEVICE_COUNT)) != 0;) {
        if (!load_device(&table->devices[i - 1], in)) {
            return false;
        }
    }
    ms_words_get_bytes(in, sums, sizeof(sums));
    table->sampling_bytes = sums[0];
    table->phase = (uint32_t)sums[1];
    table->past_phase = (uint32_t)sums[2];
    table->phase_blocks = sums[3];
    table->most_left = sums[4];
    table->allocation_ns = sums[5];
    table->allocation_site = (uint32_t)sums[6];
    if (!load_live(table, in) || !load_past(table, in)) {
        return false;
    }
    ms_words_get_buffer(in, &table->outlived, sizeof(uint64_t), MS_MOST_PASSES);
    ms_words_get_buffer(in, &table->moves.ranges, MS_MOVES_RANGE_BYTES, MOST_RANGES);
    ms_words_get_buffer(in, &table->frozen.ranges, MS_FROZEN_RANGE_BYTES, MOST_RANGES);
    return !in->failed;
}

/* ---- sums held now ---- */

void ms_site_table_copy_live(const ms_site_table_t *table, struct ms_buffer *to)
{
    for (size_t i = 0; i < ms_live_room(&table->live); i++) {
        const struct ms_live *live = ms_live_at(&table->live, i);

        if (live->key != 0 && live->key < PINNED_KEY) {
            ms_buffer_append(to, (const char *)live, sizeof(*live));
        }
    }
}

void ms_site_table_each_held(const ms_site_table_t *table, uint8_t index,
                             void (*each)(void *ctx, uint32_t site, uint64_t bytes), void *ctx)
{
    const struct device *device = &table->devices[index & (MS_DEVICE_COUNT - 1)];

    for (uint32_t id = 0; id < device->end; id = ms_site_after(device, id)) {
        const struct site *page = device->pages[id / MS_PAGE_SITES];

        if (page && page[id % MS_PAGE_SITES].now.bytes > 0) {
            each(ctx, id, page[id % MS_PAGE_SITES].now.bytes);
        }
    }
}
