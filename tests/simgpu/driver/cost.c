/* SPDX-License-Identifier: Apache-2.0 */
/* How long memory calls take, from the figures of a real card. */
#include "cost.h"

#include <stddef.h>

/* Medians in nanoseconds, of tests/gpu/NVIDIA-H200-580.159.04/costs.csv: create, map, set access,
 * unmap, release. */
static const struct {
    uint64_t mebibytes;
    uint64_t device_ns[SIM_COSTS], host_ns[SIM_COSTS];
} rows[] = {
    {2, {13376, 1045, 28569, 19298, 14324}, {186965, 3505, 85672, 48039, 44552}},
    {16, {13767, 1080, 30000, 19719, 28998}, {1860438, 8939, 287871, 92414, 276470}},
    {32, {14382, 1243, 47364, 28000, 40661}, {7938183, 15644, 540117, 157291, 602021}},
    {128, {17046, 1455, 48195, 27949, 84375}, {32513491, 22708, 1708829, 390135, 3244163}},
};
#define ROWS (sizeof rows / sizeof *rows)

/* Of one call for sixteen neighbours of 2 MiB, in percent of sixteen calls. */
static const uint64_t neighbours_percent[2][SIM_COSTS] = {
    {100, 100, 114, 113, 100}, /* on the device */
    {100, 100, 72, 68, 100},   /* on the host */
};

static uint64_t at_row(size_t row, enum sim_cost call, bool on_host)
{
    return on_host ? rows[row].host_ns[call] : rows[row].device_ns[call];
}

static uint64_t one_chunk_ns(enum sim_cost call, uint64_t bytes, bool on_host)
{
    uint64_t mebibytes = bytes >> 20;
    size_t row = 0;
    while (row + 2 < ROWS && mebibytes > rows[row + 1].mebibytes) {
        row++;
    }
    int64_t low = (int64_t)at_row(row, call, on_host);
    int64_t high = (int64_t)at_row(row + 1, call, on_host);
    uint64_t above = mebibytes > rows[row].mebibytes ? mebibytes - rows[row].mebibytes : 0;
    int64_t rows_apart = (int64_t)(rows[row + 1].mebibytes - rows[row].mebibytes);
    int64_t ns = low + (high - low) * (int64_t)above / rows_apart;
    return ns > 0 ? (uint64_t)ns : 0;
}

uint64_t sim_cost_ns(enum sim_cost call, uint64_t bytes, bool on_host, bool neighbours)
{
    bool small = bytes >> 20 <= rows[0].mebibytes;
    uint64_t percent = neighbours && small ? neighbours_percent[on_host][call] : 100;
    return one_chunk_ns(call, bytes, on_host) * percent / 100;
}
