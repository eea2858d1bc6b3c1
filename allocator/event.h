/* What happens to memory, told one event at a time to whoever listens.
 *
 * The allocator emits block, chunk and tensor events; the shim emits the others. The sink may be
 * called with the pool's state lock held: it must be short, must not block on the device, and must
 * not call back into the allocator. Events of one device arrive in the order in which they took
 * effect. */
#ifndef MEMSHIM_ALLOCATOR_EVENT_H
#define MEMSHIM_ALLOCATOR_EVENT_H

#include <stdint.h>

#include "allocator/device_ops.h"

/* Who holds memory that is charged. */
enum ms_owner {
    MS_OWNER_POOL,        /* chunks of our pool */
    MS_OWNER_APPLICATION, /* chunks that the program created itself (cuMemCreate) */
    MS_OWNER_FORWARDED, /* allocations that the driver served: arrays, managed, NCCL's, pool off */
    MS_OWNER_CONTEXT,   /* what the driver took by itself: contexts, modules, graphs, limits */
    MS_OWNER_COUNT
};

/* Each line: name, and what the fields of struct ms_event mean for it. Fields not named are 0. */
enum ms_event_kind {
    MS_EVENT_NONE,
    MS_EVENT_BLOCK_ALLOC,   /* id, addr, bytes (asked for), stream, site; aux: bytes set aside */
    MS_EVENT_BLOCK_FREE,    /* id; addr, bytes as at its birth; stream of the free; aux: 1 where the
                               block was an arena (its own bytes were not live), else 0 */
    MS_EVENT_BLOCK_ARENA,   /* id; addr, bytes as at its birth: this live block became an arena; its
                               own bytes stop being live, those of its tensors count from here on */
    MS_EVENT_TENSOR_BORN,   /* id, addr, bytes, site; aux: id of the arena's block, 0 where the
                               range lies in a proxy or in memory that the program mapped itself.
                               Told before anything is done about it: where it lies on taken
                               chunks, the CHUNK and MAP events of what backs it again follow */
    MS_EVENT_TENSOR_DIED,   /* id; addr, bytes as at its birth */
    MS_EVENT_CHUNK_CREATE,  /* id (handle), bytes, owner; site where the program created it; aux:
                               enum ms_location (one on the host is not charged to the device) */
    MS_EVENT_CHUNK_RELEASE, /* id, bytes, owner, aux as at its creation: charged no more */
    MS_EVENT_MAP,           /* id (handle), addr, bytes, owner */
    MS_EVENT_UNMAP,         /* addr, bytes, owner; id where it is known */
    MS_EVENT_SET_ACCESS,    /* addr, bytes, owner */
    MS_EVENT_RANGE_RESERVE, /* addr, bytes, owner: addresses reserved */
    MS_EVENT_RANGE_FREE,    /* addr, bytes, owner */
    MS_EVENT_CHARGE,        /* bytes more charged to owner (FORWARDED or CONTEXT); addr where there
                               is one; site; aux: enum ms_charge_reason */
    MS_EVENT_DISCHARGE,     /* bytes fewer, the same fields */
    MS_EVENT_HOST_ALLOC,    /* addr, bytes, site: pinned host memory; not charged */
    MS_EVENT_HOST_FREE,     /* addr, bytes */
    MS_EVENT_CAP,           /* bytes: the device's cap from now on; aux: the device's total bytes */
    MS_EVENT_THRESHOLD,     /* aux: the state entered (0 normal, 1 warning, 2 critical,
                               3 emergency); bytes: charged at that moment */
    MS_EVENT_PROXY_MAP,     /* id (of the proxy), addr, bytes: a framework mapped a page of its own
                               here (proxy.h); aux: where its reservation begins. What backs it is
                               told by CHUNK and MAP events of the pool, those of its mapping
                               before this one */
    MS_EVENT_PROXY_UNMAP,   /* id, addr, bytes: and took it away; its UNMAP events come before */
    MS_EVENT_ARENA_FROZEN,  /* addr, bytes of the arena: nothing is taken out of it from here on */
    MS_EVENT_STEP,          /* id: number of the step that begins here, from 1; aux: enum
                               ms_step_source. Of no device (0) */
    MS_EVENT_TAG_BEGIN, /* id: the thread, 0 for a range of the whole process; aux: the tag begun
                           there (its definition's id). Not always ended in the order of a stack, or
                           at all. Of no device (0) */
    MS_EVENT_TAG_END,   /* id: the thread; aux: the tag that ended */
    MS_EVENT_USE,       /* addr, bytes of a block or tensor that the device was asked to touch;
                           aux: 1 where it lay on the host. Told once memory was short, for each at
                           most once in a window, and 4,096 in all: a window ends with a step, and
                           every 64 ms */
    MS_EVENT_SPILL,     /* addr, bytes: their contents moved to host memory; aux: ns that the
                           device was held for it: the sum over all is all. CHUNK and MAP events
                           tell of the chunks, those of their places before this one */
    MS_EVENT_PROMOTE,   /* addr, bytes: and back; aux likewise */
    MS_EVENT_LOOK,      /* bytes: what the driver itself says is free; aux: what other processes
                           hold, UINT64_MAX where that is not known. Told where charged bytes have
                           risen by 1/64 of the device since the last one */
    MS_EVENT_WAITS, /* bytes that are free and wait from now on: the work queued before they were
                       freed is not known to be done, so that only their own stream may have
                       them. Told where they have changed by 1/512 of the device since the last
                       one, or to 0; at most 256 times, and once more for every 32 blocks that
                       were allocated or freed */
    MS_EVENT_KIND_COUNT
};

enum ms_step_source {
    MS_STEP_CALLED, /* memshim_step() */
    MS_STEP_NVTX,   /* a range named step */
    MS_STEP_SOURCE_COUNT
};

/* Why memory was charged that did not come from chunks. */
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

struct ms_event_sink {
    void (*emit)(void *ctx, const struct ms_event *event);
    void *ctx;
};

#endif
