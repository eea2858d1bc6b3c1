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
#include "allocator/base/locks/lock.h"
#include "allocator/device/budget.h"
#include "allocator/pool.h"
#include "shim/driver/hook.h"
#include "shim/group/group.h"
#include "shim/tables/driver_limit.h"
#include "shim/tables/options.h"

#define MS_RANGES_MAX \
    4096u /* reservations, or plain chunks, of one pool that can be found by address */

#define MS_EMERGENCY 3 /* the last threshold */

struct ms_pool_range {
    _Atomic ms_addr_t addr; /* 0: free */
    _Atomic uint64_t bytes;
};

/* What spill.c knows of memory on the host. One thread at a time: `busy`. */
struct ms_spill_watch {
    atomic_flag busy;
    bool begun;
    bool promoted; /* since memory was last spilled */
    unsigned checks;
    uint64_t down_bytes; /* spilled in all, at the last check */
    uint64_t steps;      /* recorded by the program, likewise */
    uint64_t stretch_step, stretch_ns, stretch_end_ns;
    uint64_t peak_bytes,
        last_peak_bytes; /* live on device and host, in this stretch and in the last */
};

struct ms_device {
    uint8_t ordinal;
    _Atomic bool graphs_allocate; /* a graph of the program has allocation nodes on it */
    CUdevice handle;
    char name[128];
    uint8_t uuid[16];
    char pci[32]; /* "0000:01:00.0"; empty if the driver does not say */
    struct ms_driver_limit mps_limit, torch_limit; /* from the environment */
    uint64_t total_bytes;                          /* the driver's answer */
    uint64_t granule_bytes;
    uint64_t fraction_ppb; /* that gave the cap; 0 if a limit in bytes did */

    struct ms_budget budget;
    ms_group_t *group;              /* whose cap applies; null: this process has its own
                                      (shim/device/group) */
    struct ms_budget_lender lender; /* the group's */
    struct ms_device_ops ops;
    ms_pool_t *pool; /* null with MEMSHIM_POOL=off */
    ms_arenas_t *arenas;

    _Atomic int rdma_flag;          /* whether chunks can have it: -1 not probed yet, 0 no, 1 yes */
    _Atomic int share_flag;         /* whether chunks can be exported as file descriptors:
                                       likewise */
    _Atomic int decompress_flag;    /* whether chunks can serve hardware decompression: likewise */
    CUmemLocation_v1 host_location; /* of host chunks; CU_MEM_LOCATION_TYPE_INVALID: none */
    /* Why the device cannot use host memory; null if it can. */
    const char *no_host_access;
    uint64_t host_limit_bytes;  /* the most host memory that the pool may use; 0: none */
    uint64_t spill_limit_bytes; /* the part of it that live memory may be spilled to; 0: none */
    struct ms_spill_watch spill_watch;
    _Atomic bool driver_pools;   /* the driver's own pools have been charged, and may keep memory */
    _Atomic bool host_made;      /* host chunks were asked for and may back tensors, or launches
                                    are watched: spill.h acts at each allocation */
    _Atomic uint32_t graph_turn; /* from 1 on; the next one begins when the program trims what
                                    the driver holds for graphs */
    _Atomic uint64_t graph_bytes;    /* charged for what the driver holds for them */
    _Atomic uint64_t access_mask;    /* bit d: device d may access the pool's mappings */
    _Atomic uint64_t withdrawn_mask; /* bit d: its access was withdrawn, and must not come back */
    _Atomic uint64_t pool_peer_mask; /* the part of access_mask that cuMemPoolSetAccess asked for */
    struct ms_pool_range ranges[MS_RANGES_MAX];
    _Atomic uint32_t range_count; /* entries of `ranges` that were ever in use */

    ms_lock_t making_primary; /* of the one thread that makes the device's primary context */
    ms_lock_t measuring; /* of the one thread that measures what the driver takes (overhead.c) */
    _Atomic uint64_t first_overhead_bytes; /* what the first context that was measured took */
    _Atomic uint64_t small_bytes;          /* total of small arrays (MS_TAKING_SMALL) */
    /* Of what the driver serves: bytes of live blocks that are no arenas, and bytes charged for
     * calls that allocate. */
    _Atomic uint64_t forwarded_live_bytes, forwarded_call_bytes;
    _Atomic uint64_t mapped_live_bytes;  /* mapped or opened by the program itself, and without
                                            pieces that a framework reports */
    _Atomic bool mapped;                 /* some of that memory is charged to this process */
    _Atomic uint64_t mapped_arena_bytes; /* mapped by the program itself, charged, and with such
                                            pieces: what is between them is nobody's */

    _Atomic uint64_t room_bytes;      /* charged bytes plus what was free on the device, at the last
                                         measurement; 0: never measured */
    _Atomic int threshold;            /* 0 normal, 1 warning, 2 critical, 3 emergency */
    _Atomic uint64_t rise_bytes;      /* once charged bytes reach this, the next threshold is
                                         crossed or a sample is due */
    _Atomic uint64_t sample_bytes;    /* once charged bytes reach this, a sample is due
                                         (sample.h) */
    _Atomic uint64_t fall_bytes;      /* once charged bytes fall below this, the present threshold
                                         is left */
    _Atomic unsigned thresholds_said; /* bit t: its line was logged */
    _Atomic bool emergency_logged;    /* the last line about it said that it began */
    _Atomic uint64_t over_due_ns;     /* CLOCK_MONOTONIC: before this no line says that it is
                                         over */
    _Atomic uint64_t ease_due_ns;     /* likewise: before this no memory is taken to end one */
    _Atomic uint64_t ease_check_ns;   /* likewise: nor is it looked whether that would serve */

    _Atomic uint64_t refusals; /* allocation calls that were refused for want of memory */
};

extern struct ms_device *_Atomic ms_devices[MS_DEVICES_MAX]; /* null: not used (yet) */

/* The device of this ordinal; null if the process does not use it (yet). Lock-free. */
static inline struct ms_device *ms_device_get(int ordinal)
{
    return ordinal >= 0 && ordinal < MS_DEVICES_MAX
               ? atomic_load_explicit(&ms_devices[ordinal], memory_order_acquire)
               : NULL;
}

/* The same, but makes the device if need be. Null with CUDA_SUCCESS: its ordinal is beyond those
 * that memshim knows, and memshim leaves it alone. An error is that of the driver's query that
 * failed, or CUDA_ERROR_OUT_OF_MEMORY without host memory; errors are not kept. The caller holds no
 * lock of this room. */
CUresult ms_device_use(int ordinal, struct ms_device **out);

/* The device of the current context; null if there is none. */
struct ms_device *ms_device_current(void);

/* A request that this process could not serve quickly by itself. The rungs on which the other
 * members give something come before, between and after its own. */
struct ms_group_climb {
    /* Tries to serve it; with may_wait also by moving live memory of this process and by waiting.
     * MS_ERR_NO_MEMORY: go on. */
    ms_status_t (*attempt)(void *ctx, bool may_wait);
    void *ctx;
    uint64_t bytes;
    bool may_wait; /* false: the others are only asked for what they hold unused */
};

/* What the rooms above do for devices, and decide about them (shim/policy). Called seldom: when a
 * device is made, and when its memory runs short. */
struct ms_device_policy {
    /* The driver's table of device operations (shim/device/operations). */
    CUresult (*operations)(struct ms_device *device);
    /* A cap that several processes share (shim/device/group). */
    void (*group_join)(struct ms_device *device);
    void (*group_leave)(struct ms_device *device);
    void (*group_attend)(struct ms_device *device);
    ms_status_t (*group_climb)(struct ms_device *device, const struct ms_group_climb *climb);
    /* A device is about to be used. */
    void (*device_used)(void);
    /* Completes the configuration of the device's pool, and the device operations. */
    void (*configure)(struct ms_device *device, struct ms_pool_config *config);
    /* A threshold was crossed for the first time in the process. */
    void (*short_of_memory)(void);
    /* The last threshold was crossed: moves live memory to the host to be below level_bytes
     * again. */
    void (*spill_ahead)(struct ms_device *device, uint64_t level_bytes);
};

const struct ms_device_policy *ms_device_policy(void);

/* To be called before the driver is found, and so before the first device; each call sets the
 * same. */
void ms_device_set_policy(const struct ms_device_policy *policy);

/* How many devices the process uses. */
int ms_devices_used(void);

/* The cap of a device of this size; also before the device is made. */
uint64_t ms_device_cap_bytes(int ordinal, uint64_t total_bytes);

/* Whether the cap is no less than the device. Then the driver itself refuses what is not there, and
 * may be asked for what only it knows to be in what it holds already. */
static inline bool ms_device_is_the_cap(const struct ms_device *device)
{
    return atomic_load(&device->budget.cap_bytes) >= device->total_bytes;
}

/* Whether the pool of this device has this address. Lock-free. */
bool ms_device_holds(const struct ms_device *device, ms_addr_t addr);

/* The device whose pool has this address; null if no pool has it. Lock-free. */
struct ms_device *ms_device_holding(ms_addr_t addr);

/* The driver's operations add or remove addresses of the pool (freed returns how many bytes they
 * were). */
void ms_device_range_reserved(struct ms_device *device, ms_addr_t addr, uint64_t bytes);
uint64_t ms_device_range_freed(struct ms_device *device, ms_addr_t addr);

/* Reserves budget for a driver call to come, and makes room in the pool if that helps. False: it
 * does not fit, and nothing is charged. may_wait: may wait for queued work whose memory would
 * help. */
bool ms_device_charge(struct ms_device *device, enum ms_owner owner, uint64_t bytes, bool may_wait);
void ms_device_discharge(struct ms_device *device, enum ms_owner owner, uint64_t bytes);

/* The same for what the driver may take by itself: earmarks the bytes, until it is known how much
 * that was (ms_budget_release_earmark). */
bool ms_device_set_aside(struct ms_device *device, uint64_t bytes);

/* How many bytes in holes the host could replace, if they were taken. */
uint64_t ms_device_replaceable_bytes(const struct ms_device *device,
                                     const struct ms_pool_stats *stats);

/* How many of them could be taken: see ms_pool_takeable_bytes. The device has a pool. */
uint64_t ms_device_takeable_bytes(const struct ms_device *device,
                                  const struct ms_pool_stats *stats);

/* Gives back what is charged outside the pool, and nobody has: what the driver's own pools keep,
 * and overhead that there is not. Nothing while a stream captures. True where that was anything. */
bool ms_device_give_back(struct ms_device *device);

/* Waits for frees in flight, for wait_ns at most and not during a capture, and gives the driver
 * everything that the pool holds unused. True if that was anything. */
bool ms_device_make_room(struct ms_device *device, uint64_t wait_ns);

/* Emits MS_EVENT_CHARGE or MS_EVENT_DISCHARGE for an owner FORWARDED or CONTEXT. site: the call
 * site that asked; 0 if there is none. */
void ms_device_note_charge(struct ms_device *device, bool more, enum ms_owner owner,
                           enum ms_charge_reason reason, uint64_t addr, uint64_t bytes,
                           uint32_t site);

/* From here on spill.h attends to memory on the host. */
void ms_device_host_made(struct ms_device *device);

/* The most that may be charged, as far as is known: the cap, or less if other processes leave the
 * device less room. Thresholds are fractions of it. */
uint64_t ms_device_limit_bytes(const struct ms_device *device);

/* Checks whether charged bytes crossed a threshold, logs it, and relieves the device as that
 * threshold asks. */
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

/* Called as memory comes and goes without charges; the caller holds no lock of a pool. If there is
 * an emergency although most charged memory is free inside the pool or cached by a framework, takes
 * enough of that to end it. Does not wait. */
void ms_device_ease(struct ms_device *device);
static inline void ms_device_check_emergency(struct ms_device *device)
{
    if (__builtin_expect(
            atomic_load_explicit(&device->threshold, memory_order_relaxed) == MS_EMERGENCY, 0)) {
        ms_device_ease(device);
    }
}

/* A stream is about to go: tells every pool, since its work may use the memory of peers. */
void ms_device_stream_gone(struct ms_device *device, ms_stream_t stream);

/* A stream is about to capture: every pool settles (ms_pool_settle). */
void ms_devices_settle(void);

#endif
