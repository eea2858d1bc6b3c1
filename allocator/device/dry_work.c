/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device's streams and fences.
 *
 * Every stream numbers its work. A clock is a vector with a number for each stream: the work up to
 * these numbers comes before a piece of work, is covered by a fence, or is known to the host to be
 * done. Comparing clocks decides order, not the luck of timing: reuse that no order protects is a
 * violation even if the work happens to be over. */
#include <string.h>

#include "allocator/device/dry_state.h"

static struct dry_stream *stream_of(struct ms_dry *dry, ms_stream_t id)
{
    for (int k = 0; id != MS_STREAM_DEVICE && k < MS_DRY_STREAMS; k++) {
        if (dry->streams[k].id == id) {
            return &dry->streams[k];
        }
    }
    return NULL;
}

static void join(struct dry_clock *into, const struct dry_clock *other)
{
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        into->seen[k] = into->seen[k] > other->seen[k] ? into->seen[k] : other->seen[k];
    }
}

/* ---- work getting done */

/* The stream's oldest unfinished piece; null: all are done. */
static struct dry_piece *next_piece(const struct dry_stream *stream)
{
    struct dry_piece *piece = stream->oldest;
    while (piece != NULL && piece->sequence <= stream->done) {
        piece = piece->next;
    }
    return piece;
}

static bool ready(const struct ms_dry *dry, const struct dry_clock *after)
{
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        if (dry->streams[k].done < after->seen[k]) {
            return false;
        }
    }
    return true;
}

/* Completes all work that is due by now. */
static void catch_up(struct ms_dry *dry)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int k = 0; k < MS_DRY_STREAMS; k++) {
            struct dry_stream *stream = &dry->streams[k];
            const struct dry_piece *piece = next_piece(stream);
            while (piece != NULL && piece->done_ns <= dry->now_ns && ready(dry, &piece->after)) {
                stream->done = piece->sequence;
                piece = piece->next;
                moved = true;
            }
        }
    }
}

/* Completes all work up to the clock, and all that it came after. Order has no cycles, so repeating
 * until nothing moves gets there. */
static void finish_up_to(struct ms_dry *dry, const struct dry_clock *clock)
{
    struct dry_clock wanted = *clock;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int k = 0; k < MS_DRY_STREAMS; k++) {
            struct dry_stream *stream = &dry->streams[k];
            struct dry_piece *piece = next_piece(stream);
            while (piece != NULL && piece->sequence <= wanted.seen[k]) {
                if (!ready(dry, &piece->after)) {
                    struct dry_clock before = wanted;
                    join(&wanted, &piece->after);
                    moved = moved || memcmp(&before, &wanted, sizeof(wanted)) != 0;
                    break;
                }
                stream->done = piece->sequence;
                piece->done_ns = piece->done_ns < dry->now_ns ? piece->done_ns : dry->now_ns;
                piece = piece->next;
                moved = true;
            }
        }
    }
}

/* When all of the clock's work will be done without ms_dry_finish; MS_DRY_UNTIL_TOLD: never. */
static uint64_t done_at_ns(const struct ms_dry *dry, const struct dry_clock *clock)
{
    uint64_t at_ns = dry->now_ns;
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        for (const struct dry_piece *piece = next_piece(&dry->streams[k]);
             piece != NULL && piece->sequence <= clock->seen[k]; piece = piece->next) {
            at_ns = piece->done_ns > at_ns ? piece->done_ns : at_ns;
        }
    }
    return at_ns;
}

/* Makes the clock's work known to the host as done. */
static void learn(struct ms_dry *dry, const struct dry_clock *clock)
{
    join(&dry->known, clock);
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        struct dry_stream *stream = &dry->streams[k];
        while (stream->oldest != NULL && stream->oldest->sequence <= dry->known.seen[k]) {
            struct dry_piece *piece = stream->oldest;
            stream->oldest = piece->next;
            ms_slab_give(&dry->piece_slab, piece);
        }
        if (stream->oldest == NULL) {
            stream->newest = NULL;
        }
    }
}

/* Lets time pass until the clock's work is done; false: that takes longer than timeout_ns. */
static bool wait_for(struct ms_dry *dry, const struct dry_clock *clock, uint64_t timeout_ns)
{
    uint64_t at_ns = done_at_ns(dry, clock);
    if (at_ns == MS_DRY_UNTIL_TOLD && !dry->stalled) {
        finish_up_to(dry, clock);
    } else {
        bool in_time = at_ns - dry->now_ns <= timeout_ns;
        dry->now_ns = in_time ? at_ns : dry->now_ns + timeout_ns;
        catch_up(dry);
    }
    bool done = ready(dry, clock);
    if (done) {
        learn(dry, clock);
    }
    return done;
}

/* ---- queueing */

/* Whether the ranges, at different addresses, share bytes of a chunk that is mapped at both. */
static bool share_bytes(struct ms_dry *dry, ms_addr_t a, uint64_t a_bytes, ms_addr_t b,
                        uint64_t b_bytes)
{
    uint64_t granule = dry->ops.granule_bytes;
    for (ms_addr_t at = a; at < a + a_bytes; at = at / granule * granule + granule) {
        uint64_t offset = 0;
        const struct dry_chunk *chunk = ms_dry_chunk_behind(dry, at, &offset);
        uint64_t end = granule - at % granule < a + a_bytes - at ? at / granule * granule + granule
                                                                 : a + a_bytes;
        if (chunk == NULL || chunk->mappings < 2) {
            continue;
        }
        for (ms_addr_t there = b; there < b + b_bytes;
             there = there / granule * granule + granule) {
            uint64_t other_offset = 0;
            uint64_t left = granule - there % granule;
            uint64_t length = left < b + b_bytes - there ? left : b + b_bytes - there;
            if (ms_dry_chunk_behind(dry, there, &other_offset) == chunk &&
                offset < other_offset + length && other_offset < offset + (end - at)) {
                return true;
            }
        }
    }
    return false;
}

/* Work of another owner on these bytes that comes neither before `after` nor is known to the host
 * to be done. Without `after`: only work that was queued at these same addresses. */
static const struct dry_piece *conflict(struct ms_dry *dry, const struct dry_clock *after,
                                        uint64_t owner, ms_addr_t addr, uint64_t bytes)
{
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        for (const struct dry_piece *piece = dry->streams[k].oldest; piece != NULL;
             piece = piece->next) {
            bool apart = piece->addr >= addr + bytes || addr >= piece->addr + piece->bytes;
            bool before = after != NULL && piece->sequence <= after->seen[k];
            if (before || (piece->owner == owner && owner != 0)) {
                continue;
            }
            if (!apart || (after != NULL && dry->mapped_twice > 0 &&
                           share_bytes(dry, addr, bytes, piece->addr, piece->bytes))) {
                return piece;
            }
        }
    }
    return NULL;
}

void ms_dry_check_quiet(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes, const char *what)
{
    const struct dry_piece *piece = conflict(dry, NULL, 0, addr, bytes);
    if (piece != NULL) {
        ms_dry_violated(dry,
                        "%s at %#lx, %lu bytes, where work of owner %lu at %#lx is not known done",
                        what, (unsigned long)addr, (unsigned long)bytes,
                        (unsigned long)piece->owner, (unsigned long)piece->addr);
    }
}

static ms_status_t queue(struct ms_dry *dry, ms_stream_t id, uint64_t owner, ms_addr_t addr,
                         uint64_t bytes, uint64_t duration_ns)
{
    struct dry_stream *stream = stream_of(dry, id);
    if (stream == NULL) {
        return MS_ERR_INVALID;
    }
    struct dry_piece *piece = ms_slab_take(&dry->piece_slab);
    if (piece == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    if (dry->halted) {
        ms_dry_violated(dry, "work of owner %lu is queued while the device is held",
                        (unsigned long)owner);
    }
    if (!ms_dry_is_accessible(dry, addr, bytes)) {
        ms_dry_violated(dry, "work of owner %lu at %#lx, %lu bytes: not all accessible",
                        (unsigned long)owner, (unsigned long)addr, (unsigned long)bytes);
    }
    const struct dry_piece *other = conflict(dry, &stream->after, owner, addr, bytes);
    if (other != NULL) {
        ms_dry_violated(dry, "premature reuse at %#lx: owner %lu, while work of owner %lu may run",
                        (unsigned long)addr, (unsigned long)owner, (unsigned long)other->owner);
    }
    uint64_t done_ns = done_at_ns(dry, &stream->after);
    done_ns = done_ns > stream->tail_ns ? done_ns : stream->tail_ns;
    done_ns = duration_ns > UINT64_MAX - done_ns ? MS_DRY_UNTIL_TOLD : done_ns + duration_ns;
    stream->tail_ns = done_ns == MS_DRY_UNTIL_TOLD ? stream->tail_ns : done_ns;
    *piece = (struct dry_piece){.sequence = ++stream->queued,
                                .owner = owner,
                                .addr = addr,
                                .bytes = bytes,
                                .done_ns = done_ns,
                                .after = stream->after};
    if (stream->newest != NULL) {
        stream->newest->next = piece;
    } else {
        stream->oldest = piece;
    }
    stream->newest = piece;
    stream->after.seen[stream - dry->streams] = stream->queued;
    return MS_OK;
}

bool ms_dry_finish_all(struct ms_dry *dry, uint64_t timeout_ns)
{
    struct dry_clock all = {0};
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        all.seen[k] = dry->streams[k].queued;
    }
    return wait_for(dry, &all, timeout_ns);
}

ms_status_t ms_dry_work(ms_dry_t *dry, ms_stream_t stream, uint64_t owner, ms_addr_t addr,
                        uint64_t bytes, uint64_t duration_ns)
{
    ms_lock_acquire(&dry->lock);
    ms_status_t status = queue(dry, stream, owner, addr, bytes, duration_ns);
    ms_lock_release(&dry->lock);
    return status;
}

/* Whether the place's former stream has left no work that anything could be ordered against. */
static bool vacant(const struct dry_stream *stream)
{
    return stream->id == 0 && stream->oldest == NULL;
}

ms_status_t ms_dry_stream_create(ms_dry_t *dry, ms_stream_t stream)
{
    ms_status_t status = MS_ERR_NO_MEMORY;
    ms_lock_acquire(&dry->lock);
    for (int k = 0; k < MS_DRY_STREAMS && status != MS_OK; k++) {
        struct dry_stream *place = &dry->streams[k];
        if (vacant(place)) {
            /* Numbering goes on, so that clocks that refer to the former stream stay true. */
            place->id = stream;
            memset(&place->after, 0, sizeof(place->after));
            place->after.seen[k] = place->queued;
            status = MS_OK;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

void ms_dry_stream_destroy(ms_dry_t *dry, ms_stream_t stream)
{
    ms_lock_acquire(&dry->lock);
    struct dry_stream *place = stream_of(dry, stream);
    if (place != NULL) {
        place->id = 0;
    }
    ms_lock_release(&dry->lock);
}

void ms_dry_stream_follows(ms_dry_t *dry, ms_stream_t stream, ms_stream_t on)
{
    ms_lock_acquire(&dry->lock);
    struct dry_stream *later = stream_of(dry, stream);
    const struct dry_stream *earlier = stream_of(dry, on);
    if (later != NULL && earlier != NULL) {
        join(&later->after, &earlier->after);
    }
    ms_lock_release(&dry->lock);
}

void ms_dry_finish(ms_dry_t *dry, ms_stream_t stream, uint64_t count)
{
    ms_lock_acquire(&dry->lock);
    struct dry_clock clock = {0};
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        const struct dry_stream *place = &dry->streams[k];
        uint64_t left = place->queued - place->done;
        if (stream == MS_STREAM_DEVICE || place->id == stream) {
            clock.seen[k] = place->done + (count < left ? count : left);
        }
    }
    finish_up_to(dry, &clock);
    ms_lock_release(&dry->lock);
}

uint64_t ms_dry_now_ns(ms_dry_t *dry)
{
    ms_lock_acquire(&dry->lock);
    uint64_t now_ns = dry->now_ns;
    ms_lock_release(&dry->lock);
    return now_ns;
}

void ms_dry_advance(ms_dry_t *dry, uint64_t ns)
{
    ms_lock_acquire(&dry->lock);
    dry->now_ns += ns;
    catch_up(dry);
    ms_lock_release(&dry->lock);
}

void ms_dry_set_stalled(ms_dry_t *dry, bool stalled)
{
    ms_lock_acquire(&dry->lock);
    dry->stalled = stalled;
    ms_lock_release(&dry->lock);
}

void ms_dry_set_capturing(ms_dry_t *dry, bool capturing)
{
    ms_lock_acquire(&dry->lock);
    dry->capturing = capturing;
    ms_lock_release(&dry->lock);
}

/* ---- fences */

static struct dry_fence *fence_of(struct ms_dry *dry, ms_fence_t fence, const char *what)
{
    if (fence == 0 || fence > dry->fence_count || !dry->fences[fence - 1].exists) {
        ms_dry_violated(dry, "%s of fence %lu, which is not there", what, (unsigned long)fence);
        return NULL;
    }
    return &dry->fences[fence - 1];
}

/* A free place in the table of fences; MS_ERR_NO_MEMORY as everywhere. */
static ms_status_t fence_place(struct ms_dry *dry, ms_fence_t *out)
{
    for (uint64_t k = 0; k < dry->fence_count; k++) {
        if (!dry->fences[k].exists) {
            *out = k + 1;
            return MS_OK;
        }
    }
    if (!ms_dry_room((void **)&dry->fences, dry->fence_count, &dry->fence_room,
                     sizeof(*dry->fences))) {
        return MS_ERR_NO_MEMORY;
    }
    *out = ++dry->fence_count;
    return MS_OK;
}

static ms_status_t op_fence_take(void *ctx, ms_stream_t id, ms_fence_t *out)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_NOT_SUPPORTED;
    ms_lock_acquire(&dry->lock);
    if (!dry->capturing && ms_dry_begin(dry, MS_DRY_FENCE_TAKE, &status)) {
        status = fence_place(dry, out);
        if (status == MS_OK) {
            struct dry_fence *fence = &dry->fences[*out - 1];
            const struct dry_stream *stream = stream_of(dry, id);
            *fence = (struct dry_fence){.exists = true};
            for (int k = 0; stream == NULL && k < MS_DRY_STREAMS; k++) {
                fence->covers.seen[k] = dry->streams[k].queued;
            }
            if (stream != NULL) {
                fence->covers = stream->after;
            }
            dry->stats.fences++;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t op_fence_query(void *ctx, ms_fence_t id)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_INVALID;
    ms_lock_acquire(&dry->lock);
    const struct dry_fence *fence = fence_of(dry, id, "query");
    if (fence != NULL && ms_dry_begin(dry, MS_DRY_FENCE_QUERY, &status)) {
        if (dry->capturing) {
            ms_dry_violated(dry, "a fence is asked for while a stream captures");
        }
        catch_up(dry);
        status = ready(dry, &fence->covers) ? MS_OK : MS_ERR_NOT_READY;
        if (status == MS_OK) {
            learn(dry, &fence->covers);
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t op_fence_wait(void *ctx, ms_fence_t id, uint64_t timeout_ns)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_INVALID;
    ms_lock_acquire(&dry->lock);
    const struct dry_fence *fence = fence_of(dry, id, "wait");
    if (fence != NULL && ms_dry_begin(dry, MS_DRY_FENCE_WAIT, &status)) {
        status = wait_for(dry, &fence->covers, timeout_ns) ? MS_OK : MS_ERR_NOT_READY;
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t op_stream_wait(void *ctx, ms_stream_t id, ms_fence_t fence_id)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_INVALID;
    ms_lock_acquire(&dry->lock);
    const struct dry_fence *fence = fence_of(dry, fence_id, "stream wait");
    struct dry_stream *stream = stream_of(dry, id);
    if (fence != NULL && stream != NULL && ms_dry_begin(dry, MS_DRY_STREAM_WAIT, &status)) {
        join(&stream->after, &fence->covers);
        status = MS_OK;
    }
    ms_lock_release(&dry->lock);
    return status;
}

static void op_fence_release(void *ctx, ms_fence_t id)
{
    struct ms_dry *dry = ctx;
    ms_lock_acquire(&dry->lock);
    struct dry_fence *fence = fence_of(dry, id, "release");
    if (fence != NULL) {
        fence->exists = false;
        dry->stats.fences--;
    }
    ms_lock_release(&dry->lock);
}

void ms_dry_work_fill_ops(struct ms_device_ops *ops)
{
    ops->fence_take = op_fence_take;
    ops->fence_query = op_fence_query;
    ops->fence_wait = op_fence_wait;
    ops->stream_wait = op_stream_wait;
    ops->fence_release = op_fence_release;
}
