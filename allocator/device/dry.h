/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device: a device_ops table that only keeps accounts, on virtual time.
 *
 * It has a memory size, addresses, chunks and mappings, and a price for every operation. Work in
 * its streams completes on demand or as virtual time passes. It checks what the contract of
 * device_ops.h asks of its caller, and what the pool promises about reuse: it keeps the first
 * violation, as a sentence. So the pool runs, is tested, fuzzed and replayed on any machine.
 *
 * Thread-safe; one lock, never held across a call out. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_DRY_H
#define MEMSHIM_ALLOCATOR_DEVICE_DRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

typedef struct ms_dry ms_dry_t;

enum ms_dry_op {
    MS_DRY_ADDRESS_RESERVE,
    MS_DRY_ADDRESS_FREE,
    MS_DRY_CHUNK_CREATE,
    MS_DRY_CHUNK_RELEASE,
    MS_DRY_MAP,
    MS_DRY_SET_ACCESS,
    MS_DRY_UNMAP,
    MS_DRY_FENCE_TAKE,
    MS_DRY_FENCE_QUERY,
    MS_DRY_FENCE_WAIT,
    MS_DRY_STREAM_WAIT,
    MS_DRY_PLAIN_ALLOC,
    MS_DRY_PLAIN_FREE,
    MS_DRY_HALT,
    MS_DRY_COPY,
    MS_DRY_COPY_WAIT,
    MS_DRY_OP_COUNT
};

/* The price of each call in virtual time, whatever its size: a real driver's time grows with the
 * number of handles, not with bytes. Copies between device and host also cost by their bytes. */
struct ms_dry_costs {
    uint64_t call_ns[MS_DRY_OP_COUNT];
    uint64_t down_ns_per_mib, up_ns_per_mib;
};

/* Measured on an A100 at 2 MiB (kvcached's benchmark): create 193 us, map 1.5, set access 36, unmap
 * 26; the others are in proportion. Copies at 25 GB/s, what PCIe 4.0 x16 gives pinned memory. */
extern const struct ms_dry_costs ms_dry_default_costs;

struct ms_dry_config {
    uint64_t granule_bytes;           /* as in device_ops; 0: no virtual memory management */
    uint64_t total_bytes;             /* device memory; chunks on the host are not limited */
    bool no_host;                     /* and not supported at all */
    bool uses_untold;                 /* report_uses says that the pool does not see all uses */
    const struct ms_dry_costs *costs; /* copied; null: every call is free */
};

#define MS_DRY_UNTIL_TOLD UINT64_MAX /* a duration: until ms_dry_finish */

ms_status_t ms_dry_create(const struct ms_dry_config *config, ms_dry_t **out);
void ms_dry_destroy(ms_dry_t *dry);

/* The table; it lives as long as the device. */
const struct ms_device_ops *ms_dry_ops(ms_dry_t *dry);

/* Makes the nth call of op from now on (1: the next one) fail with status and change nothing; all
 * other calls work. 0 cancels a failure that has not happened yet. */
void ms_dry_fail(ms_dry_t *dry, enum ms_dry_op op, uint64_t nth, ms_status_t status);

/* Likewise `count` calls in a row, of any op, from the nth on. 0 cancels what has not happened
 * yet. */
void ms_dry_fail_run(ms_dry_t *dry, uint64_t nth, uint64_t count, ms_status_t status);

/* Calls made so far, including failed ones; and the sum of their prices. */
uint64_t ms_dry_calls(ms_dry_t *dry, enum ms_dry_op op);
uint64_t ms_dry_cost_ns(ms_dry_t *dry);

/* ---- time and work */

uint64_t ms_dry_now_ns(ms_dry_t *dry);
void ms_dry_advance(ms_dry_t *dry, uint64_t ns);

/* The stream exists from this call until it is destroyed. Its id is never 0 and never used again.
 * At most MS_DRY_STREAMS exist at a time. Fences of a stream that does not exist are fences of the
 * device. */
enum { MS_DRY_STREAMS = 64 };
ms_status_t ms_dry_stream_create(ms_dry_t *dry, ms_stream_t stream);
void ms_dry_stream_destroy(ms_dry_t *dry, ms_stream_t stream);

/* Sets how much of the device other processes hold. unusable_bytes: the device reports this much
 * more as free than it has. */
void ms_dry_set_others(ms_dry_t *dry, uint64_t others_bytes, uint64_t unusable_bytes);

/* Queues work on the stream that touches these bytes on behalf of `owner` (a block's id).
 * Violations: a byte without accessible backing; a byte that queued work of another owner touches,
 * unless that work is earlier in stream order or the host knows by a fence that it is done. */
ms_status_t ms_dry_work(ms_dry_t *dry, ms_stream_t stream, uint64_t owner, ms_addr_t addr,
                        uint64_t bytes, uint64_t duration_ns);

/* Orders later work of `stream` after all that is queued on `on` now, as an event wait does. */
void ms_dry_stream_follows(ms_dry_t *dry, ms_stream_t stream, ms_stream_t on);

/* Completes the oldest `count` pieces of the stream's unfinished work, and all that they waited
 * for; MS_STREAM_DEVICE: of every stream. */
void ms_dry_finish(ms_dry_t *dry, ms_stream_t stream, uint64_t count);

/* For work that lasts until ms_dry_finish. Not stalled (the default): a fence_wait completes it, as
 * a real device would. Stalled: it stays, so that the wait times out. */
void ms_dry_set_stalled(ms_dry_t *dry, bool stalled);

/* As if a stream captured: no fence can be taken. */
void ms_dry_set_capturing(ms_dry_t *dry, bool capturing);

/* ---- contents: a tag for each 512 bytes of a chunk, wherever it is mapped, as copies leave them
 */

/* Writes the tag to all whole units of the range that are mapped. They need not be accessible. */
enum { MS_DRY_UNIT_BYTES = 512 };
void ms_dry_write(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes, uint64_t tag);

/* Whether all whole units of the range hold the tag. */
bool ms_dry_holds(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes, uint64_t tag);

/* ---- what is there */

bool ms_dry_accessible(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes);

struct ms_dry_stats {
    uint64_t used_bytes; /* device memory in chunks that live, and plain allocations */
    uint64_t host_bytes; /* chunks on the host */
    uint64_t reservations, chunks, mappings, fences, plain_allocations; /* that exist now */
    uint64_t unfinished_work;
};
void ms_dry_stats(ms_dry_t *dry, struct ms_dry_stats *out);

/* The first violation seen, valid as long as the device lives; null: there was none. */
const char *ms_dry_violation(ms_dry_t *dry);

#endif
