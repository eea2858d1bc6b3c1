/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to memory, one event at a time, for whoever listens.
 *
 * The allocator emits block, chunk and tensor events; the shim emits the others. The sink may be
 * called with the pool's state lock held: it must be short, must not block on the device, and must
 * not call back into the allocator. Events of one device arrive in the order in which they took
 * effect. */
#ifndef MEMSHIM_ALLOCATOR_BASE_EVENT_H
#define MEMSHIM_ALLOCATOR_BASE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/address.h"

/* Who holds memory that is charged. */
enum ms_owner {
    MS_OWNER_POOL,        /* chunks of our pool */
    MS_OWNER_APPLICATION, /* chunks that the program created itself (cuMemCreate) */
    MS_OWNER_FORWARDED, /* allocations that the driver served: arrays, managed, NCCL's, pool off */
    MS_OWNER_CONTEXT,   /* what the driver took by itself: contexts, modules, graphs, limits */
    MS_OWNER_COUNT
};

/* One row each in events.def, which has the meaning of the fields and their coding in a trace. */
enum ms_event_kind {
    MS_EVENT_NONE,
#define MS_EVENT(number, name, scope, fields, sums) MS_EVENT_##name = (number),
#include "allocator/base/events.def"
#undef MS_EVENT
    MS_EVENT_KIND_COUNT
};

/* The fields that a kind has, and how the trace codes its id. */
enum ms_event_field {
    MS_HAS_ID = 1,
    MS_HAS_ADDR = 2,
    MS_HAS_BYTES = 4,
    MS_HAS_STREAM = 8,
    MS_HAS_SITE = 16,
    MS_HAS_AUX = 32,
    MS_BEGINS = 64, /* a block or tensor begins: its id is mostly the previous one's plus 1 */
    MS_ENDS = 128,  /* the block or tensor of this id ends or changes: addr and bytes as when it
                       began */
    MS_HAS_PLACE = MS_HAS_ID | MS_HAS_ADDR | MS_HAS_BYTES
};

extern const uint8_t ms_event_fields[MS_EVENT_KIND_COUNT];    /* enum ms_event_field, or'ed */
extern const char *const ms_event_names[MS_EVENT_KIND_COUNT]; /* "BLOCK_ALLOC"; [0]: "NONE" */

/* "normal", "warning", "critical" or "emergency": the state that a THRESHOLD event enters. */
const char *ms_threshold_name(uint64_t state);

enum ms_step_source {
    MS_STEP_CALLED, /* memshim_step() */
    MS_STEP_NVTX,   /* a range named step */
    MS_STEP_SOURCE_COUNT
};

/* The reason for a charge that did not come from chunks. */
enum ms_charge_reason {
    MS_CHARGE_ALLOCATION, /* an allocation call that was forwarded */
    MS_CHARGE_ARRAY,
    MS_CHARGE_MANAGED,
    MS_CHARGE_NCCL,
    MS_CHARGE_DRIVER_POOL,
    MS_CHARGE_IPC,
    MS_CHARGE_CONTEXT,
    MS_CHARGE_MODULE,
    MS_CHARGE_LAUNCH,
    MS_CHARGE_GRAPH,
    MS_CHARGE_LIMIT,
    MS_CHARGE_REASON_COUNT
};

/* Whether events of its own also record a charge of this reason as a block. */
static inline bool ms_charge_is_block(uint64_t reason)
{
    return reason == MS_CHARGE_ALLOCATION || reason == MS_CHARGE_MANAGED;
}

/* Ids of blocks that no pool served begin here, far above the allocator's own ids, which count from
 * 1. Ids have four bits to spare, with which a reader may mark what is no block (site_table.h). */
#define MS_FIRST_FORWARDED_ID (UINT64_C(1) << 56)

struct ms_event {
    uint8_t kind;   /* enum ms_event_kind */
    uint8_t device; /* CUDA ordinal, 0 to 63 */
    uint8_t owner;  /* enum ms_owner */
    uint32_t site;  /* interned call site; 0: unknown */
    uint64_t id;    /* never used twice for blocks and tensors of one process */
    ms_addr_t addr;
    uint64_t bytes;
    ms_stream_t stream; /* MS_STREAM_DEVICE where the call has none */
    uint64_t aux;
};

/* A bit for each kind that belongs to no device. */
enum {
    MS_SCOPE_DEVICE = 0,
    MS_SCOPE_PROCESS = 1,
#define MS_EVENT(number, name, scope, fields, sums) | (uint64_t)MS_SCOPE_##scope << (number)
    MS_EVENTS_OF_PROCESS = 0
#include "allocator/base/events.def"
#undef MS_EVENT
};

/* Whether the event belongs to a device: steps and tags belong to the process. Its kind is in
 * range. */
static inline bool ms_event_has_device(const struct ms_event *event)
{
    return !((uint64_t)MS_EVENTS_OF_PROCESS >> event->kind & 1);
}

struct ms_event_sink {
    void (*emit)(void *ctx, const struct ms_event *event);
    void *ctx;
};

#endif
