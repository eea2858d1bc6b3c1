/* SPDX-License-Identifier: Apache-2.0 */
#include "bus.h"

#include "entry.h"
#include "settings.h"

#include <stdatomic.h>

/* copy_down in tests/gpu/NVIDIA-H200-580.159.04/costs.csv: 54.5 GB/s; copy_up differs by a
 * hundredth. */
#define BUS_NS_PER_MIB 19241u
/* Access, and nothing else, is given behind the part of a copy that is under way. Seen: at least
 * three calls on end beside one copy of 256 MiB, of 4.9 ms, took 1,031 us each for memory on the
 * device, and 1,020 us on the host. With what came between, that is a part of 1,059 us both times,
 * so the copy of 256 MiB went in several parts. */
#define PART_NS 1059000u

static _Atomic uint64_t begun_ns[SIM_BUS_UP + 1], free_from_ns[SIM_BUS_UP + 1];

/* Of the copy under way in one direction: when its part under way ends; a time that has passed:
 * there is none. */
static uint64_t part_end_ns(enum sim_bus bus, uint64_t now_ns)
{
    uint64_t end_ns = atomic_load(&free_from_ns[bus]), from_ns = atomic_load(&begun_ns[bus]);
    uint64_t whole_ns = PART_NS * sim_settings.latency;
    uint64_t parts = now_ns > from_ns ? (now_ns - from_ns) / whole_ns : 0;
    uint64_t part_ns = from_ns + (parts + 1) * whole_ns;
    return part_ns < end_ns ? part_ns : end_ns;
}

uint64_t sim_bus_part_left_ns(void)
{
    uint64_t now = sim_now_ns();
    uint64_t down = part_end_ns(SIM_BUS_DOWN, now), up = part_end_ns(SIM_BUS_UP, now);
    uint64_t end = down > up ? down : up;
    return end > now ? (end - now) / sim_settings.latency : 0;
}

void sim_bus_pass(enum sim_bus bus, uint64_t bytes)
{
    uint64_t takes_ns = (bytes * BUS_NS_PER_MIB >> 20) * sim_settings.latency;
    uint64_t before = atomic_load(&free_from_ns[bus]), end;
    do {
        uint64_t now = sim_now_ns();
        end = (before > now ? before : now) + takes_ns;
    } while (!atomic_compare_exchange_weak(&free_from_ns[bus], &before, end));
    atomic_store(&begun_ns[bus], end - takes_ns);
    sim_wait_until_ns(end);
}
