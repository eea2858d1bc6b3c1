/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device: a device_ops table that only keeps accounts, on virtual time.
 *
 * It has a memory size, addresses, chunks and mappings, streams whose work completes when it is
 * set so or when virtual time has passed, and a price for every operation. It checks what the
 * contract of device_ops.h asks of its caller, and what the pool promises about reuse: the first
 * violation is kept, as a sentence. So the pool runs, is tested, fuzzed and replayed on any
 * machine.
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

/* What one call costs in virtual time, whatever its size: what is known of real drivers scales with
 * the number of handles, not with bytes. Copies between device and host cost by their bytes too. */
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
    bool uses_untold;                 /* the table says that the pool does not hear of all uses */
    const struct ms_dry_costs *costs; /* copied; null: every call is free */
};

#define MS_DRY_UNTIL_TOLD UINT64_MAX /* a duration: until ms_dry_finish */

ms_status_t ms_dry_create(const struct ms_dry_config *config, ms_dry_t **out);
void ms_dry_destroy(ms_dry_t *dry);

/* The table; it lives as long as the device. */
const struct ms_device_ops *ms_dry_ops(ms_dry_t *dry);

/* The nth call of op from now on (1: the next one) fails with status and changes nothing; all calls
 * before and after it work. 0 takes a failure back that has not happened yet. */
void ms_dry_fail(ms_dry_t *dry, enum ms_dry_op op, uint64_t nth, ms_status_t status);

/* Likewise `count` calls on end, of whatever op, from the nth on. 0 takes back what has not
 * happened yet. */
void ms_dry_fail_run(ms_dry_t *dry, uint64_t nth, uint64_t count, ms_status_t status);

/* Calls made so far, failed ones included; and the sum of what calls cost. */
uint64_t ms_dry_calls(ms_dry_t *dry, enum ms_dry_op op);
uint64_t ms_dry_cost_ns(ms_dry_t *dry);

/* ---- time and work */

uint64_t ms_dry_now_ns(ms_dry_t *dry);
void ms_dry_advance(ms_dry_t *dry, uint64_t ns);

/* A stream exists from here on until it is destroyed. Its id is never 0 and never used again. At
 * most MS_DRY_STREAMS exist at a time. Fences of a stream that does not exist are fences of the
 * device. */
enum { MS_DRY_STREAMS = 64 };
ms_status_t ms_dry_stream_create(ms_dry_t *dry, ms_stream_t stream);
void ms_dry_stream_destroy(ms_dry_t *dry, ms_stream_t stream);

/* Other processes hold so much of the device from here on. What the device says that it has free is
 * unusable_bytes more than it has. */
void ms_dry_set_others(ms_dry_t *dry, uint64_t others_bytes, uint64_t unusable_bytes);

/* Queues work on the stream that touches these bytes on behalf of `owner` (a block's id).
 * Violations: a byte without accessible backing; a byte that queued work of another owner touches
 * which neither comes before this in stream order nor is known to the host (by a fence) to be done.
 */
ms_status_t ms_dry_work(ms_dry_t *dry, ms_stream_t stream, uint64_t owner, ms_addr_t addr,
                        uint64_t bytes, uint64_t duration_ns);

/* Later work of `stream` runs after all that is queued on `on` now, as an event wait would have it.
 */
void ms_dry_stream_follows(ms_dry_t *dry, ms_stream_t stream, ms_stream_t on);

/* The oldest `count` pieces of unfinished work of the stream are done, and with them what they had
 * to wait for; MS_STREAM_DEVICE: of every stream. */
void ms_dry_finish(ms_dry_t *dry, ms_stream_t stream, uint64_t count);

/* Whether work that lasts until it is released is finished by a fence_wait (as a real device would
 * get on with it; the default), or stays, so that the wait times out. */
void ms_dry_set_stalled(ms_dry_t *dry, bool stalled);

/* As if a stream captured: fences are not supported. */
void ms_dry_set_capturing(ms_dry_t *dry, bool capturing);

/* ---- contents: a tag for each 512 bytes of a chunk, wherever it is mapped, as copies leave them
 */

/* Writes the tag to all whole units of the range that are mapped; it need not be accessible. */
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

/* The first violation seen, valid as long as the device; null where there was none. */
const char *ms_dry_violation(ms_dry_t *dry);

#endif
