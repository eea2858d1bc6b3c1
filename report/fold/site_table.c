/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the table of sites, and the probability that a sampled allocation gets a site. */
#include "report/fold/site_table.h"

#include "allocator/base/containers/pages.h"

#define HALVINGS 10 /* of the exponent, until a short series is exact enough */

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

/* exp(x) - 1 = (exp(x / 2) - 1) * (exp(x / 2) + 1): needs only a short series for a small part of
 * the exponent. The C library's exp would make the traced process load another library. */
double ms_sampling_chance(uint64_t bytes, uint64_t mean_bytes)
{
    if (mean_bytes == 0 || bytes / mean_bytes >= 64) {
        return 1;
    }

    const double x = -(double)bytes / (double)mean_bytes / (1 << HALVINGS);
    double grown = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4)));

    for (int i = 0; i < HALVINGS; i++) {
        grown *= grown + 2;
    }
    return -grown;
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
