/* SPDX-License-Identifier: Apache-2.0 */
/* How long copies between host and device take, and how long a call for access waits for them. */
#include "bus.h"

#include "entry.h"
#include "settings.h"

#include <pthread.h>
#include <stddef.h>

/* copy_down in tests/gpu/NVIDIA-H200-580.159.04/costs.csv: 54.5 GB/s; copy_up differs by a
 * hundredth. */
#define BUS_NS_PER_MIB 19241u
/* The driver gives access only between two parts of a copy under way. Seen: at least three calls in
 * a row beside one copy of 256 MiB, of 4.9 ms, took 1,031 us each for memory on the device, and
 * 1,020 us on the host. With the time between the calls, that is a part of 1,059 us both times, so
 * the copy of 256 MiB went in several parts. */
#define PART_NS 1059000u

/* The newest copies; older ones are over, or too long ago to matter. */
enum { COPIES = 256 };
static struct {
    uint64_t begin_ns, end_ns;
} copies[SIM_BUS_UP + 1][COPIES];
static uint64_t queued[SIM_BUS_UP + 1]; /* total number of copies */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t sim_bus_take(enum sim_bus bus, uint64_t bytes)
{
    uint64_t takes_ns = (bytes * BUS_NS_PER_MIB >> 20) * sim_settings.latency, now = sim_now_ns();
    pthread_mutex_lock(&lock);
    uint64_t before_ns = queued[bus] > 0 ? copies[bus][(queued[bus] - 1) % COPIES].end_ns : 0;
    uint64_t begin_ns = before_ns > now ? before_ns : now, end_ns = begin_ns + takes_ns;
    copies[bus][queued[bus] % COPIES].begin_ns = begin_ns;
    copies[bus][queued[bus] % COPIES].end_ns = end_ns;
    queued[bus]++;
    pthread_mutex_unlock(&lock);
    return end_ns;
}

/* When the part under way in one direction ends; 0: none is under way. */
static uint64_t part_end_ns(enum sim_bus bus, uint64_t now_ns)
{
    uint64_t part_ns = PART_NS * sim_settings.latency;
    for (size_t at = 0; at < COPIES; at++) {
        uint64_t begin_ns = copies[bus][at].begin_ns, end_ns = copies[bus][at].end_ns;
        if (begin_ns <= now_ns && now_ns < end_ns) {
            uint64_t next_ns = begin_ns + ((now_ns - begin_ns) / part_ns + 1) * part_ns;
            return next_ns < end_ns ? next_ns : end_ns;
        }
    }
    return 0;
}

uint64_t sim_bus_part_left_ns(void)
{
    uint64_t now = sim_now_ns();
    pthread_mutex_lock(&lock);
    uint64_t down = part_end_ns(SIM_BUS_DOWN, now), up = part_end_ns(SIM_BUS_UP, now);
    pthread_mutex_unlock(&lock);
    uint64_t end = down > up ? down : up;
    return end > now ? (end - now) / sim_settings.latency : 0;
}
