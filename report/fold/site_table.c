/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the table of sites, and the probability that a sampled allocation gets a site. */
#include "report/fold/site_table.h"

#include "allocator/base/containers/pages.h"

#define SMALL 64u /* the series is short enough for an exponent below 1 / SMALL */

ms_site_table_t *ms_site_table_new(void)
{
    return ms_pages_map(sizeof(struct ms_site_table));
}

void ms_site_table_delete(ms_site_table_t *table)
{
    if (!table) {
        return;
    }
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        struct device *device = &table->devices[i];

        for (uint32_t page = 0; device->pages && page * MS_PAGE_SITES < device->end; page++) {
            if (device->pages[page]) {
                ms_pages_unmap(device->pages[page], MS_PAGE_SITES * sizeof(struct site));
            }
        }
        if (device->pages) {
            ms_pages_unmap(device->pages, MS_SITE_PAGES * sizeof(void *));
        }
    }
    ms_live_free(&table->live);
    ms_buffer_free(&table->past);
    ms_buffer_free(&table->outlived);
    ms_buffer_free(&table->remained);
    ms_buffer_free(&table->recorded);
    ms_moves_free(&table->moves);
    ms_frozen_free(&table->frozen);
    ms_pages_unmap(table, sizeof(*table));
}

void ms_site_table_sample(ms_site_table_t *table, uint64_t mean_bytes)
{
    table->sampling_bytes = mean_bytes;
}

static uint64_t product(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b / MS_CERTAIN);
}

/* With c(x) = 1 - exp(-x): c(2x) = c(x) * (2 - c(x)), so that only a small x needs the series. In
 * integers, because the traced process calls it, too (arithmetic.h). */
uint64_t ms_sampling_chance(uint64_t bytes, uint64_t mean_bytes)
{
    if (mean_bytes == 0 || bytes / mean_bytes >= SMALL) {
        return MS_CERTAIN;
    }

    unsigned halvings = 0;

    while ((unsigned __int128)bytes * SMALL > (unsigned __int128)mean_bytes << halvings) {
        halvings++;
    }

    const uint64_t x = (uint64_t)((unsigned __int128)bytes * (MS_CERTAIN >> halvings) / mean_bytes);
    uint64_t chance = MS_CERTAIN;

    for (uint64_t term = 5; term > 1; term--) {
        chance = MS_CERTAIN - product(x, chance) / term;
    }
    chance = product(x, chance);
    for (unsigned i = 0; i < halvings; i++) {
        chance = 2 * chance - product(chance, chance);
    }
    return chance > 0 ? chance : 1;
}

__attribute__((noinline, cold)) struct site *ms_site_table_place(struct device *device, uint32_t id)
{
    if (!device->pages) {
        device->pages = ms_pages_map(MS_SITE_PAGES * sizeof(void *));
    }
    if (!device->pages) {
        return NULL;
    }

    struct site **page = &device->pages[id / MS_PAGE_SITES];

    if (!*page) {
        *page = ms_pages_map(MS_PAGE_SITES * sizeof(**page));
    }
    if (!*page) {
        return NULL;
    }
    device->end = id >= device->end ? id + 1 : device->end;
    return &(*page)[id % MS_PAGE_SITES];
}
