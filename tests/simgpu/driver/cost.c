/* SPDX-License-Identifier: Apache-2.0 */
/* What calls and copies take on a real card, for SIMGPU_LATENCY. See cost.h. */
#include "cost.h"

#include "entry.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* The last part of a wait is not slept: a sleep ends some 50 us late. */
#define SPIN_NS 100000u

/* Measured: tests/gpu/NVIDIA-H200-580.159.04/costs.csv, medians in nanoseconds. Both ledgers of
 * that run's spills come to these costs a chunk, not a call, though neighbours went in one. */
static const struct {
    uint64_t mebibytes;
    uint64_t device_ns[SIM_COSTS], host_ns[SIM_COSTS]; /* create, map, set access, unmap, release */
} rows[] = {
    {2, {11712, 939, 26505, 17335, 13903}, {166687, 2120, 76196, 41099, 44920}},
    {16, {12017, 954, 27025, 17494, 27452}, {1438514, 4775, 267930, 75485, 280977}},
    {32, {12338, 1011, 43754, 25387, 42046}, {3202167, 5071, 474540, 110289, 551621}},
    {128, {15479, 1023, 47433, 26504, 91725}, {27660432, 17371, 1564582, 346591, 3240154}},
};
#define ROWS (sizeof rows / sizeof *rows)

/* 55 GB/s, either way. */
#define BUS_NS_PER_MIB 19040u

static uint64_t at_row(size_t row, enum sim_cost call, bool on_host)
{
    return on_host ? rows[row].host_ns[call] : rows[row].device_ns[call];
}

uint64_t sim_cost_ns(enum sim_cost call, uint64_t bytes, bool on_host)
{
    uint64_t mebibytes = bytes >> 20;
    size_t row = 0;
    while (row + 2 < ROWS && mebibytes > rows[row + 1].mebibytes) {
        row++;
    }
    uint64_t low = at_row(row, call, on_host), high = at_row(row + 1, call, on_host);
    uint64_t above = mebibytes > rows[row].mebibytes ? mebibytes - rows[row].mebibytes : 0;
    return low + (high - low) * above / (rows[row + 1].mebibytes - rows[row].mebibytes);
}

static _Atomic uint64_t free_from_ns[SIM_BUS_UP + 1];

uint64_t sim_cost_bus_left_ns(void)
{
    uint64_t down = atomic_load(&free_from_ns[SIM_BUS_DOWN]);
    uint64_t up = atomic_load(&free_from_ns[SIM_BUS_UP]);
    uint64_t end = down > up ? down : up, now = sim_now_ns();
    return end > now ? end - now : 0;
}

void sim_cost_pass_bus(enum sim_bus bus, uint64_t bytes)
{
    uint64_t takes_ns = bytes * BUS_NS_PER_MIB >> 20;
    uint64_t before = atomic_load(&free_from_ns[bus]), end;
    do {
        uint64_t now = sim_now_ns();
        end = (before > now ? before : now) + takes_ns;
    } while (!atomic_compare_exchange_weak(&free_from_ns[bus], &before, end));
    uint64_t now = sim_now_ns();
    if (end > now + SPIN_NS) {
        uint64_t sleep_ns = end - now - SPIN_NS;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(sleep_ns / 1000000000),
                                     .tv_nsec = (long)(sleep_ns % 1000000000)},
                  NULL);
    }
    while (sim_now_ns() < end) {
    }
}
