/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the digest of a bounded trace (digest.h).
 *
 * Once the trace is seven eighths full, the writer folds full windows, oldest first. It folds some
 * records at a time, twice as many as are recorded meanwhile, so that no single event pays for a
 * whole window. It writes the digest when it has to recycle a window that the last digest does not
 * cover, once for an eighth of the trace's windows: so the digest's size hardly matters. All under
 * `growing`: only the thread that met a full window waits for it.
 *
 * If something fails (no memory, lost events, a digest larger than a quarter of the trace's limit),
 * there is no digest from then on, and the trace is as good as without one. */
#include <string.h>

#include "allocator/base/checksum.h"
#include "report/fold/digest.h"
#include "report/write/writer_state.h"

#define STEP_RECORDS (UINT64_C(2) * MS_TAIL_EVENTS)
#define LEAST_BYTES  (UINT64_C(8) << 20) /* allowed for a digest, whatever the limit */
#define PART_BYTES \
    (MS_EXTENT_BYTES - sizeof(struct ms_extent_header) - sizeof(struct ms_digest_part))

void ms_digest_close(struct ms_trace *trace)
{
    atomic_store_explicit(&trace->digest.due, false, memory_order_relaxed);
    ms_trace_file_unmap(&trace->file, trace->digest.folding);
    trace->digest.folding = NULL;
    ms_fold_delete(trace->digest.fold);
    trace->digest.fold = NULL;
}

static void give_up(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role)
{
    trace->digest.off = true;
    ms_digest_close(trace);
}

/* ---- folding ---- */

/* Folds the definitions added since the last time. Needs `growing`. */
static bool fold_definitions(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_trace_digest *digest = &trace->digest;

    while (digest->site_extent < trace->sites_count) {
        int error;
        struct ms_extent_header *header =
            ms_trace_file_map(&trace->file, trace->site_offsets[digest->site_extent], &error);

        if (!header) {
            return false;
        }

        const uint64_t bytes =
            atomic_load_explicit(&header->committed, memory_order_relaxed) & UINT32_MAX;

        while (digest->site_bytes < bytes) {
            const uint8_t *at = ms_mapped_payload(header) + digest->site_bytes;
            struct ms_site_entry entry;

            memcpy(&entry, at, sizeof(entry));
            ms_fold_define(digest->fold, entry.kind, at + sizeof(entry), entry.bytes);
            digest->site_bytes += sizeof(entry) + ((entry.bytes + UINT64_C(7)) & ~UINT64_C(7));
        }
        ms_trace_file_unmap(&trace->file, header);
        if (digest->site_extent + 1 == trace->sites_count) {
            break; /* it may grow */
        }
        digest->site_extent++;
        digest->site_bytes = 0;
    }
    return true;
}

/* Folds so many records of the oldest full window that is not folded yet. Needs `growing`. */
static bool fold_some(struct ms_trace *trace, uint64_t most_records)
    MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_trace_digest *digest = &trace->digest;
    const size_t ooms = atomic_load_explicit(&digest->oom_count, memory_order_acquire);
    enum ms_fold_state state;
    int error;

    if (!digest->folding) {
        digest->fold = digest->fold ? digest->fold : ms_fold_new();
        if (!digest->fold || !fold_definitions(trace)) {
            return false;
        }
        digest->folding =
            ms_trace_file_map(&trace->file, trace->ring[ms_ring_at(trace, digest->folded)], &error);
        if (!digest->folding) {
            return false;
        }
    }
    state = ms_fold_some(digest->fold, digest->folding, digest->ooms, ooms, most_records);
    if (state != MS_FOLD_MORE) {
        ms_trace_file_unmap(&trace->file, digest->folding);
        digest->folding = NULL;
        digest->folded += state == MS_FOLD_DONE;
    }
    return state != MS_FOLD_FAILED;
}

/* Makes sure that no window is half folded, and at least one is folded whole. Needs `growing`. */
static bool finish_folding(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role)
{
    bool good = true;

    while (good && (trace->digest.folding || trace->digest.folded == 0)) {
        good = fold_some(trace, UINT64_MAX);
    }
    return good;
}

void ms_digest_ahead(struct ms_trace *trace)
{
    const uint32_t begin = trace->ring_limit - trace->ring_limit / 8;
    const uint32_t folded = trace->digest.folded;

    atomic_store_explicit(&trace->digest.due,
                          !trace->digest.off && trace->ring_count + 2 > begin + folded &&
                              folded < trace->ring_count,
                          memory_order_relaxed);
}

void ms_digest_step(struct ms_trace *trace)
{
    if (!ms_trace_growing_try(trace)) {
        return;
    }
    if (atomic_load_explicit(&trace->digest.due, memory_order_relaxed)) {
        if (!fold_some(trace, STEP_RECORDS)) {
            give_up(trace);
        }
        if (!trace->digest.folding) {
            ms_digest_ahead(trace);
        }
    }
    ms_trace_growing_release(trace);
}

/* ---- writing ---- */

/* One more extent for the digest: a new one. On a full disk it is that of the oldest folded window,
 * which is a moment too early: a process killed just then has no digest. */
static bool add_extent(struct ms_trace *trace, struct ms_digest_slot *slot)
    MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_mapped extent = {0};

    if (slot->count == MS_DIGEST_PARTS) {
        return false;
    }
    if (ms_mapped_new(trace, &extent) != 0) {
        ms_trace_disk_full(trace);
        if (trace->digest.folded == 0 || trace->ring_count < 3 ||
            ms_window_recycle(trace, &extent) != 0) {
            return false;
        }
    }
    slot->offsets[slot->count++] = extent.offset;
    ms_mapped_drop(trace, &extent);
    return true;
}

static bool put_part(struct ms_trace *trace, uint64_t offset, struct ms_digest_part part,
                     const char *from, size_t bytes) MS_REQUIRES(ms_trace_growing_role)
{
    int error;
    struct ms_extent_header *header = ms_trace_file_map(&trace->file, offset, &error);

    if (!header) {
        return false;
    }
    ms_mapped_withdraw(trace, header);
    header->start_time_ns = 0;
    header->first_event = 0;
    header->base_count = 0;
    header->payload_offset = sizeof(*header);
    memcpy(ms_mapped_payload(header), &part, sizeof(part));
    memcpy(ms_mapped_payload(header) + sizeof(part), from, bytes);
    atomic_store_explicit(&header->committed, (sizeof(part) + bytes) | UINT64_C(1) << 32,
                          memory_order_release);
    ms_trace_put(trace, ms_mapped_payload(header), sizeof(part) + bytes);
    ms_mapped_seal(trace, header);
    ms_mapped_publish(trace, header, MS_EXTENT_DIGEST,
                      part.generation * MS_DIGEST_PARTS + part.part + 1);
    ms_trace_file_unmap(&trace->file, header);
    return true;
}

static bool put_all(struct ms_trace *trace, const struct ms_digest_slot *slot,
                    const struct ms_buffer *digest) MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_digest_part part = {.generation = trace->digest.generation + 1,
                                  .parts =
                                      (uint32_t)((digest->bytes + PART_BYTES - 1) / PART_BYTES),
                                  .total_bytes = digest->bytes,
                                  .checksum = ms_checksum(digest->at, digest->bytes)};

    for (; part.part < part.parts; part.part++) {
        const size_t at = part.part * PART_BYTES;
        const size_t left = digest->bytes - at;

        if (!put_part(trace, slot->offsets[part.part], part, digest->at + at,
                      left < PART_BYTES ? left : PART_BYTES)) {
            return false;
        }
    }
    return true;
}

/* From here on the folded windows may be recycled. */
static bool commit(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_trace_digest *digest = &trace->digest;
    struct ms_digest_slot *slot = &digest->slots[(digest->generation + 1) & 1];
    const uint64_t most = (uint64_t)trace->ring_room * MS_EXTENT_BYTES / 4;
    struct ms_buffer stored = {0};
    bool written = false;

    ms_fold_store(digest->fold, &stored);
    if (!stored.failed && stored.bytes <= (most > LEAST_BYTES ? most : LEAST_BYTES)) {
        written = true;
        while (written && slot->count * PART_BYTES < stored.bytes) {
            written = add_extent(trace, slot);
        }
        written = written && put_all(trace, slot, &stored);
    }
    ms_buffer_free(&stored);
    if (written) {
        digest->generation++;
        digest->covered = digest->folded;
    }
    return written;
}

void ms_digest_cover(struct ms_trace *trace)
{
    struct ms_trace_digest *digest = &trace->digest;

    /* More than once on a full disk: the digest's own extents come first then. */
    while (!digest->off && digest->covered == 0) {
        if (!finish_folding(trace) || !commit(trace)) {
            give_up(trace);
        }
    }
}
