/* SPDX-License-Identifier: Apache-2.0 */
/* Reads results out of the table. */
#include <string.h>

#include "report/fold/site_table.h"

/* The epoch of the peak; the newest block's, if that made it. */
static uint64_t peak_of(const struct device *device)
{
    return device->candidate ? device->candidate : device->peak;
}

static struct held held_at(const struct site *site, uint64_t epoch)
{
    return site->kept[epoch & 1].epoch == epoch ? site->kept[epoch & 1].held : site->now;
}

bool ms_site_table_lifetimes(const ms_site_table_t *table, uint8_t index, uint32_t id,
                             struct ms_site_lifetimes *lifetimes)
{
    const struct device *device = &table->devices[index & (MS_DEVICE_COUNT - 1)];
    const struct site *site = ms_site_table_find(device, id);
    const uint64_t peak = peak_of(device);

    if (!site) {
        return false;
    }
    *lifetimes = (struct ms_site_lifetimes){.first_phase = site->lifetimes.first_phase,
                                            .last_phase = site->lifetimes.last_phase};
    memcpy(lifetimes->bytes, site->lifetimes.bytes, sizeof(lifetimes->bytes));
    if (peak && site->lifetimes.at_peak[peak & 1].epoch == peak) {
        memcpy(lifetimes->at_peak_bytes, site->lifetimes.at_peak[peak & 1].bytes,
               sizeof(lifetimes->at_peak_bytes));
    }
    return true;
}

uint8_t ms_site_table_recorded(const ms_site_table_t *table, uint32_t allocation)
{
    return allocation - table->recorded_first < table->recorded.bytes
               ? (uint8_t)table->recorded.at[allocation - table->recorded_first]
               : MS_RECORDED_NOTHING;
}

uint32_t ms_site_table_allocations(const ms_site_table_t *table)
{
    return table->allocations;
}

static uint64_t count_of(const struct ms_buffer *by_pass)
{
    return by_pass->bytes / sizeof(uint64_t);
}

static uint64_t bytes_of(const struct ms_buffer *by_pass, uint64_t pass)
{
    return pass < count_of(by_pass) ? ((const uint64_t *)by_pass->at)[pass] : 0;
}

/* What remains of a pass, where later ones made gradients, too, is there for good: a work space
 * that a library made in it. */
uint64_t ms_site_table_outlived(const ms_site_table_t *table, uint64_t pass)
{
    const bool last =
        pass + 1 >= count_of(&table->outlived) && pass + 1 >= count_of(&table->remained);

    return bytes_of(&table->outlived, pass) + (last ? bytes_of(&table->remained, pass) : 0);
}

uint32_t ms_site_table_end(const ms_site_table_t *table, uint8_t device)
{
    return table->devices[device & (MS_DEVICE_COUNT - 1)].end;
}

uint32_t ms_site_table_after(const ms_site_table_t *table, uint8_t device, uint32_t site)
{
    return ms_site_after(&table->devices[device & (MS_DEVICE_COUNT - 1)], site);
}

bool ms_site_table_read(const ms_site_table_t *table, uint8_t index, uint32_t id,
                        struct ms_site_sums *sums)
{
    const struct device *device = &table->devices[index & (MS_DEVICE_COUNT - 1)];
    const struct site *site = ms_site_table_find(device, id);

    if (!site) {
        return false;
    }

    const struct held at_peak = held_at(site, peak_of(device));

    *sums = site->sums;
    sums->live_bytes = site->now.bytes;
    sums->at_peak_bytes = at_peak.bytes;
    sums->at_peak_count = at_peak.count;
    sums->forwarded_bytes = site->now.forwarded_bytes;
    sums->forwarded_at_peak_bytes = at_peak.forwarded_bytes;
    sums->estimated_at_peak_bytes = at_peak.estimate;
    sums->estimated_at_peak_variance = at_peak.variance;
    if (device->fresh_id && device->fresh_site == id &&
        device->fresh_site_bytes > sums->peak_bytes) {
        sums->peak_bytes = device->fresh_site_bytes;
    }
    return sums->allocations + sums->frees + sums->live_bytes + sums->at_peak_bytes +
               sums->forwarded_bytes + sums->forwarded_at_peak_bytes + sums->pinned_bytes +
               sums->pinned_peak_bytes >
           0;
}
