/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's extents: making, publishing, sealing and recycling them. */
#include <errno.h>
#include <string.h>

#include "allocator/base/cancel.h"
#include "allocator/base/checksum.h"
#include "allocator/base/containers/pages.h"
#include "report/write/writer_state.h"

int ms_mapped_new(struct ms_trace *trace, struct ms_mapped *extent)
{
    const int cancellation = ms_cancel_hold();
    int error = ms_trace_file_grow(&trace->file, &extent->offset);

    if (!error) {
        extent->header = ms_trace_file_map(&trace->file, extent->offset, &error);
        if (!extent->header) {
            ms_trace_file_cut(&trace->file, extent->offset);
        }
    }
    ms_cancel_let(cancellation);
    return error;
}

void ms_mapped_drop(struct ms_trace *trace, struct ms_mapped *extent)
{
    ms_trace_file_unmap(&trace->file, extent->header);
    *extent = (struct ms_mapped){0};
}

void ms_mapped_publish(struct ms_trace *trace, struct ms_extent_header *header, uint32_t kind,
                       uint64_t sequence)
{
    header->magic = MS_EXTENT_MAGIC;
    header->kind = kind;
    header->trace_id = trace->header->trace_id;
    header->checksum = ms_extent_checksum(header, sequence);
    ms_trace_put(trace, header, header->payload_offset);
    atomic_store_explicit(&header->sequence, sequence, memory_order_release);
    ms_trace_put(trace, &header->sequence, sizeof(header->sequence));
}

bool ms_mapped_append(struct ms_trace *trace, struct ms_extent_header *header, const void *entry,
                      size_t entry_bytes, const void *payload, size_t payload_bytes)
{
    const uint64_t committed = atomic_load_explicit(&header->committed, memory_order_relaxed);
    const uint64_t used = committed & UINT32_MAX;
    const uint64_t bytes = entry_bytes + ((payload_bytes + 7u) & ~7ull);
    uint8_t *at = ms_mapped_payload(header) + used;

    if (header->payload_offset + used + bytes > MS_EXTENT_BYTES) {
        return false;
    }
    memcpy(at, entry, entry_bytes);
    memcpy(at + entry_bytes, payload, payload_bytes);
    ms_trace_put(trace, at, bytes);
    /* The number of entries is in the upper half. */
    atomic_store_explicit(&header->committed, committed + bytes + (1ull << 32),
                          memory_order_release);
    ms_trace_put(trace, &header->committed, sizeof(header->committed));
    return true;
}

/* Out of line, because GCC's thread sanitizer does not support fences: there it is not checked. */
__attribute__((noinline)) void ms_mapped_withdraw(struct ms_trace *trace,
                                                  struct ms_extent_header *header)
{
    atomic_store_explicit(&header->sequence, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    ms_trace_put(trace, &header->sequence, sizeof(header->sequence));
}

void ms_mapped_seal(struct ms_trace *trace, struct ms_extent_header *header)
{
    uint64_t bytes = atomic_load_explicit(&header->committed, memory_order_relaxed) & UINT32_MAX;

    atomic_store_explicit(&header->payload_checksum,
                          ms_checksum(ms_mapped_payload(header), (size_t)bytes),
                          memory_order_release);
    ms_trace_put(trace, &header->payload_checksum, sizeof(header->payload_checksum));
}

void ms_trace_leave_mappings(struct ms_trace *trace)
{
    const int cancellation = ms_cancel_hold();

    ms_trace_growing_acquire(trace);
    ms_trace_acquire(trace);
    if (!trace->closed) {
        ms_trace_file_leave_mappings(&trace->file);
    }
    ms_trace_release(trace);
    ms_trace_growing_release(trace);
    ms_cancel_let(cancellation);
}

/* ---- windows ---- */

int ms_window_recycle(struct ms_trace *trace, struct ms_mapped *extent)
{
    int error;

    extent->offset = trace->ring[ms_ring_at(trace, 0)];
    extent->header = ms_trace_file_map(&trace->file, extent->offset, &error);
    if (!extent->header) {
        return error;
    }
    ms_trace_add(trace, &trace->header->recycled_events,
                 atomic_load_explicit(&extent->header->committed, memory_order_relaxed) >> 32);
    ms_mapped_withdraw(trace, extent->header);
    atomic_store_explicit(&extent->header->committed, 0, memory_order_release);
    atomic_store_explicit(&extent->header->payload_checksum, 0, memory_order_release);
    ms_trace_put(trace, extent->header, sizeof(*extent->header));
    trace->ring_first = ms_ring_at(trace, 1);
    trace->ring_count--;
    trace->digest.folded -= trace->digest.folded > 0;
    trace->digest.covered -= trace->digest.covered > 0;
    return 0;
}

/* Needs `growing`. At least two windows stay: the one being filled and the one before it. */
static int next_window(struct ms_trace *trace, struct ms_mapped *extent)
    MS_REQUIRES(ms_trace_growing_role)
{
    int error = ENOSPC;

    if (trace->ring_count + 2 <= trace->ring_room) {
        error = ms_mapped_new(trace, extent);
        if (!error) {
            return 0;
        }
        /* More room may come later; the digest counts on the present room. */
        trace->ring_limit =
            trace->ring_count + 2 > MS_MIN_WINDOWS ? trace->ring_count + 2 : MS_MIN_WINDOWS;
        ms_trace_disk_full(trace);
    }
    if (trace->ring_count > 1) {
        ms_digest_cover(trace);
    }
    if (trace->ring_count > 1) {
        return ms_window_recycle(trace, extent);
    }
    return error;
}

bool ms_window_prepare(struct ms_trace *trace)
{
    struct ms_mapped spare = {0};
    bool ready = true;

    ms_trace_growing_acquire(trace);
    ms_trace_acquire(trace);

    struct ms_mapped retired = trace->retired;
    bool wanted = !trace->spare.header && !trace->closed;

    trace->retired = (struct ms_mapped){0};
    ms_trace_release(trace);
    if (retired.header) {
        ms_mapped_seal(trace, retired.header);
        trace->ring[ms_ring_at(trace, trace->ring_count)] = retired.offset;
        trace->ring_count++;
        ms_mapped_drop(trace, &retired);
    }
    if (wanted) {
        ready = next_window(trace, &spare) == 0;
        ms_trace_acquire(trace);
        trace->spare = spare;
        ms_trace_release(trace);
        ms_digest_ahead(trace);
    }
    ms_trace_growing_release(trace);
    return ready;
}

void ms_window_switch(struct ms_trace *trace, uint64_t now_ns)
{
    struct ms_extent_header *header = trace->spare.header;
    struct ms_base *base = (struct ms_base *)(header + 1);

    trace->retired = trace->window;
    trace->window = trace->spare;
    trace->spare = (struct ms_mapped){0};
    header->start_time_ns = now_ns;
    header->first_event = trace->packed;
    header->base_count = 0;
    for (uint64_t device = 0; device < MS_DEVICE_COUNT; device++) {
        if (trace->pages[device]) {
            base->device = device;
            base->sums = trace->sums[device];
            base++;
            header->base_count++;
        }
    }
    header->payload_offset = (uint32_t)((uint8_t *)base - (uint8_t *)header);
    trace->payload = ms_mapped_payload(header);
    trace->payload_bytes = 0;
    trace->payload_room = MS_EXTENT_BYTES - header->payload_offset;
    trace->window_events = 0;
    ms_codec_reset(&trace->codec, now_ns);
    ms_mapped_publish(trace, header, MS_EXTENT_WINDOW, ++trace->window_sequence);
}

/* ---- pages of devices, and the log ---- */

/* Called without the lock. If the file has no room for a device, its sums stay in memory: the
 * windows repeat them. */
void ms_device_make(struct ms_trace *trace, uint8_t device)
{
    struct ms_mapped extent = {0};
    struct ms_device_page *page = NULL;

    ms_trace_growing_acquire(trace);
    if (!trace->pages[device] && !trace->closed) {
        if (ms_mapped_new(trace, &extent) == 0) {
            page = (struct ms_device_page *)(extent.header + 1);
        } else {
            ms_trace_disk_full(trace);
            page = ms_pages_map(sizeof(*page));
        }
    }
    if (page) {
        page->device = device;
        ms_series_init(&page->series);
        if (extent.header) {
            extent.header->payload_offset = sizeof(*extent.header);
            ms_trace_put(trace, page, sizeof(*page));
            ms_mapped_publish(trace, extent.header, MS_EXTENT_DEVICE, (uint64_t)device + 1);
        }
        ms_trace_acquire(trace);
        trace->pages[device] = page;
        trace->device_extents[device] = extent;
        ms_trace_release(trace);
    }
    ms_trace_growing_release(trace);
}

bool ms_log_next(struct ms_trace *trace)
{
    struct ms_mapped fresh = {0}, full = {0};
    bool grown = false;

    ms_trace_growing_acquire(trace);
    if (!trace->closed && trace->log_count < MS_MAX_LOGS) {
        grown = ms_mapped_new(trace, &fresh) == 0;
    }
    if (grown) {
        fresh.header->payload_offset = sizeof(*fresh.header);
        ms_trace_acquire(trace);
        full = trace->log;
        trace->log = fresh;
        ms_mapped_publish(trace, fresh.header, MS_EXTENT_LOG, ++trace->log_count);
        ms_trace_release(trace);
    }
    if (full.header) {
        ms_mapped_seal(trace, full.header);
        ms_mapped_drop(trace, &full);
    }
    ms_trace_growing_release(trace);
    return grown;
}
