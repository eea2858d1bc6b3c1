/* The pool's insides, shared by the files that make it up and by arena.c. See pool.c for the plan.
 *
 * Locks: `state` covers everything but what is named here; `growth` is held by the one thread that
 * changes backing (segments, slots, chunks, marks) and is taken before `state`, never after. The
 * slots of a segment and the list of segments change under both locks and may be read under
 * either. */
#ifndef MEMSHIM_ALLOCATOR_POOL_INTERNAL_H
#define MEMSHIM_ALLOCATOR_POOL_INTERNAL_H

#include "allocator/forecast.h"
#include "allocator/lock.h"
#include "allocator/order.h"
#include "allocator/pool.h"
#include "allocator/range.h"
#include "allocator/slab.h"
#include "allocator/starts.h"

struct ms_arenas;
struct ms_tensor;

struct ms_chunk {
    ms_handle_t handle; /* the address, where the device has no virtual memory management */
    uint64_t bytes;
    struct ms_segment *segment; /* where it is mapped; null for a spare */
    uint64_t slot;              /* its first slot there */
    struct ms_chunk *next;      /* in a list of spares, or of what a fill has done so far */
    bool host;                  /* host memory, for holes and what is spilled; not charged */
    bool was_mapped;            /* the next mapping moves it */
    bool stuck;                 /* could not be unmapped: lost, with the addresses it backs */
    bool spilled;               /* on the host, where it took the place of a device chunk */
    uint8_t returns;            /* as in struct ms_spill_candidate; of what lies on it */
    uint64_t promoted; /* the standstill that its contents came from the host in; 0: none */

    /* Of a chunk that is mapped twice: see views.h. Null elsewhere. Growth lock. */
    struct ms_chunk *twin; /* the same chunk in its other place */
    struct ms_range *lent; /* the part of its granule that the twin has */
};

/* A block, or a framework's reservation, with what its holes owe and whether they may be taken. */
struct ms_arena {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;          /* of its block; 0: a reservation */
    uint64_t reach_bytes; /* of a reservation: as in struct ms_candidate */
    uint64_t unbacked_bytes;
    bool frozen; /* nothing is taken out of it any more */
};

/* What is known of one granule of a segment that holds tensors. State lock. A granule is quiet when
 * it is an arena's, backed, and touched by no live tensor: only such may be taken. */
struct ms_granule {
    struct ms_arena *arena; /* whose it wholly is; null: nobody's, or shared with other ranges */
    uint64_t since;       /* by the clock. With live tensors: its last use, a birth or one that was
                             told; without: when its last tensor died, 0: none ever touched it */
    uint32_t last_gap;    /* as in struct ms_candidate; as large as fits */
    uint32_t epoch;       /* when its last tensor died, or it became an arena's: work of earlier
                             epochs is known to be done up to ms_repair.done_epoch */
    uint32_t tensors;     /* live ones that touch it */
    uint16_t ends_before; /* live ones that end at most MS_OVERREAD_BYTES before it */
    bool asks : 1;        /* unbacked or on_host: a birth on it looks for backing */
    bool unbacked : 1;    /* an arena's, and nothing accessible behind it */
    bool pinned : 1;      /* its identity has left the process */
    bool refused : 1;     /* a birth on it could not be backed: the program was told nothing */
    bool on_host : 1;     /* backed by the host; known where live memory is spilled */
    bool spanned : 1;     /* a hashed tensor reaches it that begins before it */
    bool states : 1;      /* all that touch it were optimizer state when it was looked for */
    uint64_t summary[4];  /* of the marks in it: see tensors.c */
};

/* Kernels that read a little past their end exist: what begins so near behind a live tensor is
 * taken last. */
#define MS_OVERREAD_BYTES 4096u

struct ms_segment {
    ms_addr_t base;
    uint64_t bytes;
    struct ms_range *first;  /* ranges in address order cover it all */
    struct ms_starts starts; /* of live blocks */
    struct ms_chunk **slots; /* one for each granule: what backs it; null for nothing */
    uint64_t slot_count;
    enum ms_region region;
    bool plain;           /* one chunk of plain_alloc: slot 0 stands for all of it */
    struct ms_heat *heat; /* one for each slot, state lock; null: nobody asked. See ahead.h */

    /* From the first tensor in it on; null before. */
    struct ms_granule *granules; /* one for each slot */
    uint64_t *quiet;             /* a bit for each slot: see struct ms_granule */
    uint64_t *marks;             /* where tensors begin and end: see tensors.h */
    unsigned granule_shift;      /* log2 of its bytes */

    /* Of a framework's reservation; null elsewhere. */
    struct ms_arena *foreign;
    struct ms_proxy **proxies; /* what is mapped at each slot */
};

/* Counters of the statistics that change with every block. */
struct ms_pool_counters {
    uint64_t live_blocks, live_bytes, arena_bytes, set_aside_bytes;
    uint64_t reserved_bytes, free_bytes, pending_bytes;
    uint64_t waits_told, waiting_told_bytes; /* MS_EVENT_WAITS: how many, and the last one's */
    uint64_t allocations, frees, failed_allocations;
    uint64_t chunks_created, chunks_released, chunks_moved, maps, unmaps, set_accesses;
    uint64_t quiet_granules;
    uint64_t owed_bytes; /* of arenas and proxies, not backed: see promise.c */
    uint64_t host_reserve_bytes, host_backed_bytes, peak_host_backed_bytes;
    uint64_t holes_taken, holes_backed;
    uint64_t views, views_made;
    struct ms_spill_stats spill;
};

enum { MS_EPOCHS_UNDER_WAY = 8 };

/* A mark of the whole device: when it is done, all work of its epoch and before is. */
struct ms_epoch_mark {
    ms_mark_t mark;
    uint32_t epoch;
};

/* Repairing from below: see holes.c. */
struct ms_repair {
    struct ms_arenas *arenas;  /* state lock; null where nobody reports tensors */
    struct ms_slab arena_slab; /* state lock */
    uint64_t clock;            /* state lock: births and deaths so far */
    uint32_t epoch;            /* state lock: of what dies now */
    uint32_t done_epoch;       /* both locks to change */
    bool frozen;               /* state lock: nothing is taken any more, for good */
    struct ms_range *draining; /* state lock */

    /* Growth lock. */
    struct ms_epoch_mark under_way[MS_EPOCHS_UNDER_WAY]; /* oldest first */
    unsigned marks;
    uint64_t marked_clock;           /* the clock at the last mark */
    struct ms_chunk *reserve;        /* host chunks, mapped nowhere */
    _Atomic uint64_t promised_bytes; /* our part of the budget's; read without the lock, too */
    bool no_host;                    /* the device cannot reach host chunks */
    struct ms_victim *victims;
    size_t victim_room;
    struct ms_slab proxy_slab;
    struct ms_proxy *proxies; /* all there are */
};

/* A chunk that may be taken or moved, by rank: see victims.c. */
struct ms_victim {
    uint64_t rank;
    uint64_t next_use; /* the tick of it, where something is to be spilled or promoted */
    bool behind_live;  /* begins right behind a live tensor's end */
    struct ms_chunk *chunk;
    struct ms_range *live; /* one that lies on it; null in a framework's reservation */
};

/* Moving contents: see move.c and spill.c. Growth lock. */
struct ms_moving {
    bool under_way;             /* both locks to change: chunks behind live blocks change */
    struct ms_segment *staging; /* addresses to copy to; null: none were needed yet */
    uint64_t staged;            /* its first slots, which have a chunk of one granule each */
    uint64_t room_bytes;        /* charged to the budget of all that is spilled, and not spilled */
    uint64_t since_ns;          /* of the standstill: up to where its time is accounted for */
    struct ms_range *cut;       /* free memory that moves along, linked by free.batch_next; busy */
    bool refused;               /* the device did not stand still for the request under way */
    unsigned refusals;          /* so often on end */
    uint64_t rest_until_ns;     /* and it is not asked again before this time */
    bool broken;                /* contents could not be put back: nothing is moved any more */
};

/* Listens, and passes on. */
struct ms_ear {
    struct ms_pool *pool;
    struct ms_event_sink sink;
};

/* Spilling and promoting ahead of use: see ahead.c. State lock. */
struct ms_ahead {
    struct ms_forecast forecast; /* births null: memory has not been short yet */
    struct ms_ear pool_ear, arenas_ear;
    uint64_t live_bytes;  /* of blocks that are no arenas, and tensors */
    uint64_t look_tick;   /* when what is on the host is looked at again */
    uint32_t look;        /* number of the last one */
    uint64_t steps;       /* of the forecast, when the next four were begun anew */
    uint64_t spills;      /* in this step */
    uint64_t idle_bytes;  /* the least that lay idle since the last one */
    uint64_t again_bytes; /* what the second and later ones were for */
    uint64_t trim_bytes;  /* how much less than foretold is enough */
    bool uses_told;       /* of what lasts, too. Growth lock */
    _Atomic bool due;     /* that time has come */
};

/* Optimizer state: see states.h. State lock. Ids of the youngest that are not an optimizer's, of
 * all that was ever seen: those of blocks and of tensors come from different stretches. */
struct ms_states {
    uint64_t other_block, other_tensor;
};

struct ms_pool {
    struct ms_pool_config config;
    const struct ms_device_ops *ops;
    uint64_t granule_bytes; /* of our backing, 2 MiB or more; 0: no virtual memory management */

    ms_lock_t state;
    ms_lock_t growth;

    struct ms_index index;
    struct ms_orders orders;
    struct ms_treap_node *holes[MS_REGIONS];
    struct ms_slab range_slab;
    struct ms_range *whole; /* see ms_ranges_give_up_whole; linked by draining.next, stuck */
    struct ms_pool_counters count;
    uint64_t next_id, end_id; /* ids taken from the process's, not yet given to a block */
    uint64_t first_id;        /* that it ever took */

    struct ms_segment **segments; /* by address */
    size_t segment_count, segment_room;

    struct ms_slab chunk_slab, segment_slab; /* growth lock */
    struct ms_chunk *spares;                 /* growth lock: created, charged, mapped nowhere */
    uint64_t spare_most_bytes;               /* growth lock: none of them is larger */
    struct ms_chunk *views;                  /* growth lock: one of each pair of twins */
    struct ms_repair repair;
    struct ms_moving moving;
    struct ms_ahead ahead;
    struct ms_states states;
};

/* unit: a power of two, as a granule is. */
static inline uint64_t ms_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) & ~(unit - 1);
}

/* ---- ids.c: never used twice in this process. The first of `count` new ones. */
uint64_t ms_ids_take(uint64_t count);

/* ---- tiling.c: ranges in their segments. State lock. */

struct ms_segment *ms_segment_of(const struct ms_pool *pool, ms_addr_t addr);

/* Adds a segment covered by one busy range; both locks. MS_ERR_NO_MEMORY when
 * the host has no room, and then nothing was added. */
ms_status_t ms_segment_add(struct ms_pool *pool, ms_addr_t base, uint64_t bytes, bool plain,
                           struct ms_segment **out);
/* Removes one whose single range is in no set. */
void ms_segment_remove(struct ms_pool *pool, struct ms_segment *segment);

/* Cuts `range`, which must be in no set, so that it keeps its first `bytes`; the rest becomes a new
 * range in the same state and in no set. Null when the host is out of memory. */
struct ms_range *ms_range_split(struct ms_pool *pool, struct ms_range *range, uint64_t bytes);

/* Joins `range` with its next neighbour; both in no set. The neighbour's node is given back. */
void ms_range_absorb_next(struct ms_pool *pool, struct ms_range *range);

/* Makes a range that is in no set free in `batch` (null: idle), or a hole, joined with those
 * neighbours it can be joined with. Returns the range that holds it now. */
struct ms_range *ms_range_make_free(struct ms_pool *pool, struct ms_range *range,
                                    struct ms_batch *batch);
struct ms_range *ms_range_make_hole(struct ms_pool *pool, struct ms_range *range);

/* Takes a free range or a hole out of its sets; it is busy from then on. */
void ms_range_take(struct ms_pool *pool, struct ms_range *range);

/* The order that a free range is in. */
struct ms_order *ms_range_order(struct ms_pool *pool, const struct ms_range *range);

/* Whether a request on `stream` may use the free range at once. */
bool ms_range_usable(const struct ms_range *range, ms_stream_t stream);

/* Turns the busy range into a live block of the request, told to the sink. */
void ms_range_make_live(struct ms_pool *pool, struct ms_range *range,
                        const struct ms_request *request, struct ms_block_info *out);

void ms_range_info(const struct ms_range *range, struct ms_block_info *out);

/* Takes `bytes` (rounded) from the beginning of a free range for a block; the rest stays free. */
ms_status_t ms_range_carve(struct ms_pool *pool, struct ms_range *range, uint64_t bytes,
                           const struct ms_request *request, struct ms_block_info *out);

/* ---- marks.c: learning what has completed. Growth lock held, state lock not. */

/* Asks every sealed batch, oldest first, whether it is done; done ones become idle. True if any
 * range became idle. Nothing is asked while anything captures. */
bool ms_marks_poll(struct ms_pool *pool);

/* Seals and marks what has been freed up to now, in every order; without `all`, not in those that
 * have many marks under way already. Nothing while anything captures. */
void ms_marks_take(struct ms_pool *pool, bool all);

/* The best fit that `stream` may use behind a wait; the wait is queued. MS_ERR_NO_MEMORY: none. */
ms_status_t ms_marks_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                       uint64_t bytes, struct ms_block_info *out);

/* Waits for the oldest mark of one order, with the growth lock released meanwhile, and takes the
 * time from *left_ns. `turn` counts up over the calls of one allocation: the orders take turns, so
 * that one stream that stands still does not hide another that moves. False: nothing to wait for.
 */
bool ms_marks_wait(struct ms_pool *pool, unsigned turn, uint64_t *left_ns);

/* The stream's order ends: see ms_pool_stream_gone. */
void ms_marks_stream_gone(struct ms_pool *pool, ms_stream_t stream);

/* Gives every mark back, at the pool's end. */
void ms_marks_release_all(struct ms_pool *pool);

/* ---- backing.c: chunks under addresses. Growth lock held, state lock not. */

/* How a fill gets its chunks: spares first, then new ones. */
struct ms_fill {
    bool large; /* few and large ones, as long as memory is ample */
    bool birth; /* the room promised to holes may be used */
    bool host;  /* where the device has none, from the reserve of host chunks */
};

/* Backs every granule without a chunk under a busy range and gives access. The range ends on a
 * granule where it ends in a hole. On failure all that it did is undone; slots whose chunk is stuck
 * are the exception. */
ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large);

/* Backs the unbacked granules of arenas in the slots [from, to), one run after the other; what was
 * backed before one fails stays so. */
ms_status_t ms_backing_fill_holes(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, const struct ms_fill *fill);

/* A chunk that could not be unmapped some time ago leaves its slots now, or they stay lost. */
ms_status_t ms_backing_unstick(struct ms_pool *pool, struct ms_chunk *chunk);

/* Whether a chunk of so many bytes may be made at once: it cannot be split later. */
bool ms_backing_ample(const struct ms_pool *pool, uint64_t bytes);

/* A new chunk on the device, charged: a spare that is in no list. properties: see device_ops.h. */
ms_status_t ms_backing_chunk_make(struct ms_pool *pool, uint64_t bytes, bool birth,
                                  const void *properties, struct ms_chunk **out);
/* A new one on the host, in the reserve. */
ms_status_t ms_backing_host_make(struct ms_pool *pool);
/* One of the reserve. MS_ERR_NO_MEMORY: it is empty. */
ms_status_t ms_backing_host_take(struct ms_pool *pool, struct ms_chunk **out);
/* Gives host chunks of the reserve back until at most keep_bytes are left. */
void ms_backing_host_release(struct ms_pool *pool, uint64_t keep_bytes);

/* Puts a chunk that is mapped nowhere with the spares, one on the host with the reserve. */
void ms_backing_add_spare(struct ms_pool *pool, struct ms_chunk *chunk);

/* Maps the chunk at its place, and notes it there; no access yet. */
ms_status_t ms_backing_map(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk *chunk);
ms_status_t ms_backing_give_access(struct ms_pool *pool, const struct ms_segment *segment,
                                   uint64_t from, uint64_t to);
/* Unmaps neighbouring chunks in one call; tells, but leaves slots and lists to the caller. */
ms_status_t ms_backing_unmap(struct ms_pool *pool, struct ms_chunk *const *chunks, size_t count);

/* The parts of an unmapping whose device call the caller makes: telling, and emptying the slots. */
void ms_backing_tell_unmap(struct ms_pool *pool, struct ms_chunk *chunk);
void ms_backing_clear(struct ms_pool *pool, struct ms_chunk *chunk);

/* Takes chunks out of idle ranges, which become holes, until `enough_bytes` have been or none is
 * left; they become spares. Adds what it took to *taken_bytes. */
ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes);

/* How much, up to `enough_bytes` or a little more, lies in chunks that ms_backing_unmap_idle could
 * take. */
uint64_t ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes);

/* Gives the spares back to the device; returns the bytes released. Where holes are owed more than
 * is promised to them, the room goes to them. */
uint64_t ms_backing_release_spares(struct ms_pool *pool);

/* Adds a segment of addresses, one hole, that a request of `bytes` fits in. */
ms_status_t ms_backing_reserve(struct ms_pool *pool, uint64_t bytes, enum ms_region region);

/* Addresses where the pool maps chunks for a while, in no tree and no set. */
ms_status_t ms_backing_reserve_staging(struct ms_pool *pool, uint64_t bytes,
                                       struct ms_segment **out);

/* Without virtual memory management: a segment of plain memory that a request of `bytes` fits in,
 * as one busy range. And giving back those that are idle, until enough_bytes have been. */
ms_status_t ms_backing_plain_add(struct ms_pool *pool, uint64_t bytes, struct ms_range **out);
uint64_t ms_backing_plain_release(struct ms_pool *pool, uint64_t enough_bytes);

/* See ms_pool_refresh_access. */
ms_status_t ms_backing_refresh_access(struct ms_pool *pool);

/* Takes all chunks and segments apart at the pool's end. */
void ms_backing_drop_all(struct ms_pool *pool, bool device_gone);

/* At the pool's end: chunks of a list that are mapped nowhere. */
void ms_backing_drop_list(struct ms_pool *pool, struct ms_chunk *list, bool device_gone);

/* ---- proxy.c */

/* The segment was a framework's. Both locks. */
void ms_foreign_forget(struct ms_pool *pool, struct ms_segment *segment);

void ms_proxies_init(struct ms_pool *pool);

/* At the pool's end. */
void ms_proxies_drop(struct ms_pool *pool, bool device_gone);

/* What those that are mapped nowhere are owed, and what their chunks hold. Growth lock. */
uint64_t ms_proxies_sum(const struct ms_pool *pool, uint64_t *chunks_bytes);

/* ---- emit: state lock held. */
static inline void ms_pool_emit(struct ms_pool *pool, const struct ms_event *event)
{
    if (pool->config.sink.emit != NULL) {
        struct ms_event told = *event;
        told.device = pool->config.device;
        pool->config.sink.emit(pool->config.sink.ctx, &told);
    }
}

/* ---- granules.c: arenas, granule by granule. State lock. */

/* Sees to it that the segment has granules. False: the host has no memory. */
bool ms_granules_need(struct ms_pool *pool, struct ms_segment *segment);
void ms_granules_drop(struct ms_pool *pool, struct ms_segment *segment);

/* An arena of the live block; null when the host is out of memory. */
struct ms_arena *ms_granules_arena(struct ms_pool *pool, struct ms_range *range);

/* The slots become the arena's, backed where a chunk stands; and nobody's again. */
void ms_granules_enter(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       struct ms_arena *arena, bool pinned);
void ms_granules_leave(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                       uint64_t to);

/* The slots have got accessible backing, or have lost it. */
void ms_granules_backed(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                        uint64_t to);
void ms_granules_unbacked(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to);
/* Notes where the slots' chunk stands (null: nothing does). */
void ms_granules_place(const struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                       uint64_t to, const struct ms_chunk *chunk);
void ms_granules_pin(struct ms_segment *segment, uint64_t from, uint64_t to);

uint64_t ms_granules_unbacked_bytes(const struct ms_pool *pool, const struct ms_segment *segment,
                                    uint64_t from, uint64_t to);

/* The slots that lie wholly in the range. */
void ms_granules_inside(const struct ms_pool *pool, const struct ms_segment *segment,
                        ms_addr_t addr, uint64_t bytes, uint64_t *from, uint64_t *to);

static inline bool ms_quiet_test(const struct ms_segment *segment, uint64_t slot)
{
    return (segment->quiet[slot / 64] >> (slot % 64) & 1) != 0;
}

static inline void ms_quiet_set(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot)
{
    segment->quiet[slot / 64] |= (uint64_t)1 << (slot % 64);
    pool->count.quiet_granules++;
}

static inline void ms_quiet_clear(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot)
{
    if (ms_quiet_test(segment, slot)) {
        segment->quiet[slot / 64] &= ~((uint64_t)1 << (slot % 64));
        pool->count.quiet_granules--;
    }
}

/* ---- epochs.c: when the work of holes is done. Growth lock held, state lock not. */

/* A mark of the device for all that has died up to now, unless one has it already. */
void ms_epochs_mark(struct ms_pool *pool);
/* Asks the marks, oldest first. Nothing is asked while anything captures. */
void ms_epochs_poll(struct ms_pool *pool);
/* Waits for the oldest mark, with the growth lock released meanwhile, and takes the time from
 * *left_ns. False: nothing to wait for. */
bool ms_epochs_wait(struct ms_pool *pool, uint64_t *left_ns);
void ms_epochs_release_all(struct ms_pool *pool);

/* ---- promise.c: what holes are owed, and what covers it. Growth lock held, state lock not. */

/* Room for a chunk of `bytes` in the budget: of a birth, from what is promised first. */
bool ms_promise_charge(struct ms_pool *pool, uint64_t bytes, bool birth);
/* The chunk is gone; its room goes to holes that are owed more than is promised, else to all. */
void ms_promise_discharge(struct ms_pool *pool, uint64_t bytes);

/* Cover for `bytes` that will be owed from now on: from the budget, or, without `budget`, from host
 * chunks alone. MS_ERR_NO_MEMORY: there is not enough; ms_promise_settle gives the rest back. */
ms_status_t ms_promise_secure(struct ms_pool *pool, uint64_t bytes, bool budget);

/* Replaces up to `bytes` promised in the budget by host chunks; returns what became free. */
uint64_t ms_promise_to_host(struct ms_pool *pool, uint64_t bytes);

/* Host chunks in the reserve for `bytes` beyond what covers holes. MS_ERR_NO_MEMORY: not so many.
 */
ms_status_t ms_promise_host_spare(struct ms_pool *pool, uint64_t bytes);

/* How much could still be covered by host chunks. */
uint64_t ms_promise_host_room(struct ms_pool *pool);

/* Gives back what covers more than is owed. */
void ms_promise_settle(struct ms_pool *pool);

/* ---- holes.c. Growth lock held, state lock not. */

/* How much, up to `enough_bytes` or a little more, could be taken now. *pending: whether more will
 * be when queued work is done; may be null. */
uint64_t ms_holes_takeable(struct ms_pool *pool, uint64_t enough_bytes, bool *pending);

/* Makes spares of chunks of holes until enough_bytes have been or none is left. What covers them is
 * the caller's business. Adds to *taken_bytes. */
ms_status_t ms_holes_take(struct ms_pool *pool, uint64_t enough_bytes, uint64_t *taken_bytes);

/* How much of `bytes` ms_holes_make_room could make room for at once. */
uint64_t ms_holes_room(struct ms_pool *pool, uint64_t bytes);

/* Makes room for a request that the budget lacks `bytes` for: promises move to the host, then
 * chunks of holes become spares (*taken_bytes). Does not wait. MS_ERR_NO_MEMORY: not enough. */
ms_status_t ms_holes_make_room(struct ms_pool *pool, uint64_t bytes, uint64_t *taken_bytes);

/* Of the slots [from, to), in which a tensor is born: whether ms_holes_back has anything to do. */
bool ms_holes_want_backing(struct ms_pool *pool, const struct ms_segment *segment, uint64_t from,
                           uint64_t to);

/* Backs all unbacked granules in the slots [from, to), by whatever means; may wait. Host chunks
 * that hold nothing but what is being born give way to those of the device. */
ms_status_t ms_holes_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to);
/* Likewise all there are; nothing is taken any more, for good. */
void ms_holes_freeze(struct ms_pool *pool);

/* Gets host chunks back that stand behind nothing live. */
void ms_holes_recover(struct ms_pool *pool);

/* What was to drain and lies on the device by now is free, its work being done. */
void ms_holes_drain_no_more(struct ms_pool *pool);

/* At the pool's end. */
void ms_holes_forget(struct ms_pool *pool);

/* ---- victims.c. Growth lock. */

enum { MS_RUN_CHUNKS = 64 };

/* Room for so many in pool->repair.victims; less where the host has no memory. */
void ms_victims_need(struct ms_pool *pool, size_t wanted);
void ms_victims_order(struct ms_victim *heap, size_t count);
/* Takes the best out of an ordered heap that is not empty. */
struct ms_victim ms_victims_pop(struct ms_victim *heap, size_t *count);

/* Mapped chunks linked by `next`: sorts them; takes neighbours off the front of a sorted list. */
struct ms_chunk *ms_chunks_by_address(struct ms_chunk *list);
size_t ms_chunks_take_run(const struct ms_pool *pool, struct ms_chunk **list,
                          struct ms_chunk *run[MS_RUN_CHUNKS]);

/* ---- move.c: contents move to other chunks, under the same addresses. Growth lock held, state
 * lock not. */

/* Chunks of one granule each for `bytes`, accessible at addresses of their own: on the host from
 * the reserve, on the device new ones. On failure there are none. */
ms_status_t ms_move_stage(struct ms_pool *pool, uint64_t bytes, enum ms_location to);

/* Takes them away again: spares, or in the reserve. What the device will not unmap stays staged,
 * and is tried again by the next ms_move_stage. */
void ms_move_unstage(struct ms_pool *pool);

/* Holds the device, copies what lies on the chunks (linked by `next`) to the staged ones, which are
 * as many granules, and lets them change places; run by run of neighbours, each wholly or not at
 * all. Adds the bytes of those that did to *moved_bytes; their chunks are spares, or in the
 * reserve, like the staged chunks of those that did not. */
ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes);

/* Whether the device has refused to stand still more than once on end, a short time ago. */
bool ms_move_rests(const struct ms_pool *pool);

/* ---- spill.c. Growth lock held, state lock not. */

/* Whether contents can move at all: at this moment, for the request under way. */
bool ms_spill_possible(struct ms_pool *pool);

/* So much is not spilled any more; or, after a move that failed, is again, for which there was
 * room before it. */
void ms_spill_less(struct ms_pool *pool, uint64_t bytes);
void ms_spill_again(struct ms_pool *pool, uint64_t bytes);

/* What has to leave the device. */
struct ms_spill_need {
    uint64_t bytes;
    uint64_t kept_bytes; /* of the room on the host, which stay for others */
    uint64_t born_bytes; /* that are not live yet, and will be in these and what is idle */
};

/* Makes spares of at least so much of device chunks behind live memory, whose contents move to the
 * host; adds all to *taken_bytes. Waits for the device to stand still, a bounded time.
 * MS_ERR_NO_MEMORY: not so much can be moved, or not now. */
ms_status_t ms_spill_make_room(struct ms_pool *pool, const struct ms_spill_need *need,
                               uint64_t *taken_bytes);

/* Whether something on the host in these slots was pinned there, for want of room: its identity may
 * be known by now, and it stays. State lock. */
bool ms_spill_known_on_host(const struct ms_pool *pool, const struct ms_segment *segment,
                            uint64_t from, uint64_t to);

/* Brings all that lies on the host in these slots back. MS_ERR_NO_MEMORY: there is no room. */
ms_status_t ms_spill_bring_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to);

/* ---- ladder.c: what an allocation does that no free block fits. No lock held. */
ms_status_t ms_ladder_climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                            struct ms_block_info *out);

/* ---- place.c: where a request goes. State lock. */

enum ms_region ms_region_of(const struct ms_pool *pool, uint64_t bytes);

/* Whether so much of the cap is spoken for that good places go before few driver calls. */
bool ms_place_tight(const struct ms_pool *pool);

struct ms_place {
    struct ms_range *first;  /* free or hole; addr lies in it or in those that follow */
    ms_addr_t addr;          /* where the block begins */
    uint64_t unbacked_bytes; /* of its granules */
    uint64_t new_chunks;     /* of its granules, those that no live block touches yet */
};

/* The best place for a request on `stream`; without `holes_too`, of those that need no backing.
 * False: none. */
bool ms_place_best(struct ms_pool *pool, ms_stream_t stream, uint64_t bytes, bool holes_too,
                   struct ms_place *out);

/* A place at the beginning of a hole that has room alone: no idle chunk is cut by it. */
bool ms_place_fresh(struct ms_pool *pool, uint64_t bytes, struct ms_place *out);

/* Makes one busy range of a place; what lies around it stays what it was. In a hole it takes whole
 * granules, so that it may begin before the block and end after it. *idle: whether all of it was
 * idle or hole. Null: the host is out of memory, nothing changed. */
struct ms_range *ms_place_claim(struct ms_pool *pool, const struct ms_place *place, uint64_t bytes,
                                bool *idle);

/* Takes from a free range or a hole what lies in [from, to), which is not nothing; the rest stays
 * what it was. Two nodes are in reserve (ms_slab_reserve). */
struct ms_range *ms_range_cut(struct ms_pool *pool, struct ms_range *range, ms_addr_t from,
                              ms_addr_t to);

/* A block in what the request may use at once and is backed. MS_ERR_NO_MEMORY: none, or, while
 * memory is tight, a better place needs driver calls. */
ms_status_t ms_pool_reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                          struct ms_block_info *out);

/* Likewise, wherever there is room: in other regions too, and whatever it wastes. */
ms_status_t ms_pool_reuse_any(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, struct ms_block_info *out);

/* The busy range is given up: its pieces become what stands behind them, free in `batch` (null:
 * idle) where backed. State lock. */
void ms_range_give_up(struct ms_pool *pool, struct ms_range *range, struct ms_batch *batch);
/* What could not be cut into its pieces then, for the host had no memory, is given up now, as what
 * is freed in the device's order. Growth lock held, state lock not. */
void ms_ranges_give_up_whole(struct ms_pool *pool);

/* ---- pool.c: the live block around addr; null where there is none. State lock. */
struct ms_range *ms_pool_block_around(struct ms_pool *pool, ms_addr_t addr);

/* ---- pool.c, for arena.c: the live block around addr becomes an arena, told to the sink the first
 * time. Null where no live block is. State lock. */
struct ms_range *ms_pool_mark_arena(struct ms_pool *pool, ms_addr_t addr);

/* ---- arena.c: buries what lives in the range. State lock. */
void ms_arenas_bury(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes);
/* The live tensor around *addr in the segment, if there is one: its beginning and bytes. State
 * lock.
 */
void ms_arenas_around(struct ms_arenas *arenas, const struct ms_segment *segment, ms_addr_t *addr,
                      uint64_t *bytes);
/* Who is told; and the live bytes. State lock. */
struct ms_event_sink *ms_arenas_sink(struct ms_arenas *arenas);
uint64_t ms_arenas_live_bytes(const struct ms_arenas *arenas);
/* Every live tensor in a segment that has granules. `visit` changes no tensor. State lock. */
void ms_arenas_each(struct ms_arenas *arenas,
                    void (*visit)(void *ctx, struct ms_segment *segment,
                                  const struct ms_tensor *tensor),
                    void *ctx);
/* The segment is about to be forgotten. State lock. */
void ms_arenas_segment_gone(struct ms_arenas *arenas, const struct ms_segment *segment);

#endif
