/* SPDX-License-Identifier: Apache-2.0 */
/* One device of the process: its budget, its pool, its arenas, and the driver behind them.
 *
 * A device is made at its first use (a context is made or seen, an allocation) and lives until the
 * process ends. */
#ifndef MEMSHIM_SHIM_DEVICE_DEVICE_H
#define MEMSHIM_SHIM_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arenas/arena.h"
#include "allocator/device/budget.h"
#include "allocator/pool.h"
#include "shim/driver/hook.h"
#include "shim/group/group.h"
#include "shim/tables/driver_limit.h"
#include "shim/tables/options.h"

#define MS_RANGES_MAX \
    4096u /* reservations, or plain chunks, of one pool that are known by address */

#define MS_EMERGENCY 3 /* the last of the thresholds */

struct ms_pool_range {
    _Atomic ms_addr_t addr; /* 0: free */
    _Atomic uint64_t bytes;
};

/* What is known of memory on the host (spill.c). One thread at a time: `busy`. */
struct ms_spill_watch {
    atomic_flag busy;
    bool begun;
    bool promoted; /* since memory was spilled last */
    unsigned checks;
    uint64_t down_bytes; /* spilled in all, when that was looked at last */
    uint64_t steps;      /* recorded by the program, likewise */
    uint64_t stretch_step, stretch_ns, stretch_end_ns;
    uint64_t peak_bytes,
        last_peak_bytes; /* live on device and host, in this stretch and the last */
};

struct ms_device {
    uint8_t ordinal;
    CUdevice handle;
    char name[128];
    uint8_t uuid[16];
    char pci[32]; /* "0000:01:00.0"; empty where the driver does not say */
    struct ms_driver_limit mps_limit, torch_limit; /* as the environment had them */
    uint64_t total_bytes;                          /* as the driver says */
    uint64_t granule_bytes;
    double fraction; /* that the cap came from, 0 where a limit decided */

    struct ms_budget budget;
    ms_group_t *group; /* whose cap it is; null: this process has its own (device_group.h) */
    struct ms_budget_lender lender; /* the group's */
    struct ms_device_ops ops;
    ms_pool_t *pool; /* null with MEMSHIM_POOL=off */
    ms_arenas_t *arenas;

    _Atomic int rdma_flag;          /* of chunks: -1 not probed yet, 0 without, 1 with */
    _Atomic int share_flag;         /* chunks can be exported as file descriptors: likewise */
    _Atomic int decompress_flag;    /* chunks of hardware decompression: likewise */
    CUmemLocation_v1 host_location; /* of host chunks; CU_MEM_LOCATION_TYPE_INVALID: none */
    /* Why there is no host memory to fall back on; null where there is. */
    const char *no_host_access;
    uint64_t host_limit_bytes;  /* most host memory that the pool may take; 0: none */
    uint64_t spill_limit_bytes; /* most of it that live memory may be spilled to; 0: none */
    struct ms_spill_watch spill_watch;
    _Atomic bool host_made;          /* a host chunk was asked for, some may stand behind tensors;
                                        or launches are looked at: spill.h acts at each allocation */
    _Atomic uint64_t access_mask;    /* bit d: device d may access the pool's mappings */
    _Atomic uint64_t withdrawn_mask; /* bit d: it could once, and must not any more */
    _Atomic uint64_t pool_peer_mask; /* the part of access_mask that cuMemPoolSetAccess asked for */
    struct ms_pool_range ranges[MS_RANGES_MAX];
    _Atomic uint32_t range_count; /* entries of `ranges` that were ever used */

    atomic_flag measuring; /* what the driver takes by itself: one thread at a time (overhead.c) */
    _Atomic uint64_t first_overhead_bytes; /* what its first measured context took */
    _Atomic uint64_t small_bytes;          /* sum of small arrays (MS_TAKING_SMALL) */
    /* Of what the driver served: live blocks that are no arenas, and all that is charged for calls
     * that allocate. */
    _Atomic uint64_t forwarded_live_bytes, forwarded_call_bytes;
    _Atomic uint64_t mapped_live_bytes; /* that the program mapped or opened by itself, and of which
                                           no framework reports pieces */
    _Atomic bool mapped;                /* there was such memory among what it is charged for */

    _Atomic uint64_t room_bytes;      /* charged, and free on the device, when that was looked at
                                         last; 0: never */
    _Atomic int threshold;            /* 0 normal, 1 warning, 2 critical, 3 emergency */
    _Atomic uint64_t rise_bytes;      /* charged at or above this: the next threshold is crossed,
                                         or a sample is due */
    _Atomic uint64_t sample_bytes;    /* charged at or above this: a sample is due (sample.h) */
    _Atomic uint64_t fall_bytes;      /* charged below this: the present one is left */
    _Atomic unsigned thresholds_said; /* bit t: its line was written */
    _Atomic bool emergency_told;      /* the last line on it says that it is entered */
    _Atomic uint64_t over_due_ns;     /* CLOCK_MONOTONIC: no line before it says that it is over */
    _Atomic uint64_t ease_due_ns;     /* likewise: nothing is taken before it to end one */

    _Atomic uint64_t refusals; /* allocation calls that were refused as out of memory */
};

/* The device of this ordinal; null where the process does not use it (yet). Lock-free. */
struct ms_device *ms_device_get(int ordinal);

/* The same, made where there is none. Null and CUDA_SUCCESS: beyond those that memshim knows, and
 * left alone. An error is that of the driver's query that failed, or CUDA_ERROR_OUT_OF_MEMORY where
 * the host has none; nothing is remembered of it. No lock of this room may be held. */
CUresult ms_device_use(int ordinal, struct ms_device **out);

/* The device of the current context; null where there is none. */
struct ms_device *ms_device_current(void);

/* What the rooms above decide about devices (shim/policy). Asked seldom: when a device is made, and
 * when its memory becomes short. */
struct ms_device_policy {
    /* A device is about to be used. */
    void (*device_used)(void);
    /* Completes the configuration of the device's pool, and its operations. */
    void (*configure)(struct ms_device *device, struct ms_pool_config *config);
    /* A threshold was crossed, for the first time in the process. */
    void (*short_of_memory)(void);
    /* The last one is crossed: live memory goes to the host to be below this again. */
    void (*spill_ahead)(struct ms_device *device, uint64_t level_bytes);
};

const struct ms_device_policy *ms_device_policy(void);

/* Set before the driver is found, so before the first device; the same at each call. */
void ms_device_set_policy(const struct ms_device_policy *policy);

/* How many devices the process uses. */
int ms_devices_used(void);

/* The cap as it is, or would be, for a device of this size. */
uint64_t ms_device_cap_bytes(int ordinal, uint64_t total_bytes);

/* The pool whose addresses hold addr; null where no pool does. Lock-free. */
struct ms_device *ms_device_holding(ms_addr_t addr);

/* Addresses that the pool has from now on, or no more (freed returns how many bytes they were),
 * set by the driver's operations. */
void ms_device_range_reserved(struct ms_device *device, ms_addr_t addr, uint64_t bytes);
uint64_t ms_device_range_freed(struct ms_device *device, ms_addr_t addr);

/* Reserves in the budget for something that the driver is going to be asked for, making room in
 * the pool where that helps. False: it does not fit, and nothing is charged. may_wait: for work in
 * flight whose memory would help. */
bool ms_device_charge(struct ms_device *device, enum ms_owner owner, uint64_t bytes, bool may_wait);
void ms_device_discharge(struct ms_device *device, enum ms_owner owner, uint64_t bytes);

/* How much of what lies in holes could be taken: what the host could stand in for. */
uint64_t ms_device_takeable_bytes(const struct ms_device *device,
                                  const struct ms_pool_stats *stats);

/* Gives the driver all that the pool holds and nobody uses, after waiting for frees in flight, at
 * most so long, and not at all while a stream captures. True where that was anything. */
bool ms_device_make_room(struct ms_device *device, uint64_t wait_ns);

/* MS_EVENT_CHARGE or MS_EVENT_DISCHARGE of what is FORWARDED or CONTEXT. site: that asked for it, 0
 * where it is no one's. */
void ms_device_note_charge(struct ms_device *device, bool more, enum ms_owner owner,
                           enum ms_charge_reason reason, uint64_t addr, uint64_t bytes,
                           uint32_t site);

/* Memory on the host is attended to from here on (spill.h). */
void ms_device_host_made(struct ms_device *device);

/* The most that may be charged, as far as is known: the cap, or what the device has room for where
 * other processes leave less. Thresholds are fractions of it. */
uint64_t ms_device_limit_bytes(const struct ms_device *device);

/* Looks whether charged bytes have crossed a threshold, says so, and does what it asks for. */
void ms_device_cross_threshold(struct ms_device *device);
static inline bool ms_device_crosses_threshold(struct ms_device *device)
{
    uint64_t charged = atomic_load_explicit(&device->budget.charged_bytes, memory_order_relaxed);
    return __builtin_expect(
        charged >= atomic_load_explicit(&device->rise_bytes, memory_order_relaxed) ||
            charged < atomic_load_explicit(&device->fall_bytes, memory_order_relaxed),
        0);
}
static inline void ms_device_check_thresholds(struct ms_device *device)
{
    if (ms_device_crosses_threshold(device)) {
        ms_device_cross_threshold(device);
    }
}

/* To be called as memory comes and goes without charges, and no lock of a pool is held: where an
 * emergency stands though most of what is charged is free inside the pool or cached by a framework,
 * takes as much of that as ends it. Does not wait. */
void ms_device_ease(struct ms_device *device);
static inline void ms_device_check_emergency(struct ms_device *device)
{
    if (__builtin_expect(
            atomic_load_explicit(&device->threshold, memory_order_relaxed) == MS_EMERGENCY, 0)) {
        ms_device_ease(device);
    }
}

/* The stream will be gone: to every pool, since its work may use the memory of peers. */
void ms_device_stream_gone(struct ms_device *device, ms_stream_t stream);

/* A stream is about to capture: every pool settles (ms_pool_settle). */
void ms_devices_settle(void);

#endif
