/* SPDX-License-Identifier: Apache-2.0 */
/* Writes definitions of call sites (definitions.h) into extents of their own, which are never
 * recycled. It writes rarely, once a site: all under `growing`, so that no emitter of events waits
 * for it. */
#include <errno.h>

#include "report/write/writer_state.h"

/* Needs `growing`. False: the extent in use has no room. */
static bool put(struct ms_trace *trace, struct ms_site_entry entry, const void *payload)
    MS_REQUIRES(ms_trace_growing_role)
{
    return trace->sites.header && ms_mapped_append(trace, trace->sites.header, &entry,
                                                   sizeof(entry), payload, entry.bytes);
}

/* Needs `growing`. If there is no room for another extent, the one in use stays: something smaller
 * may fit into it. */
static bool next(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role)
{
    struct ms_mapped fresh = {0};

    if (trace->sites_count == trace->sites_room) {
        return false;
    }
    if (ms_mapped_new(trace, &fresh) != 0) {
        ms_trace_disk_full(trace);
        return false;
    }
    fresh.header->payload_offset = sizeof(*fresh.header);
    trace->site_offsets[trace->sites_count] = fresh.offset;
    ms_mapped_publish(trace, fresh.header, MS_EXTENT_SITES, ++trace->sites_count);
    if (trace->sites.header) {
        ms_mapped_seal(trace, trace->sites.header);
        ms_mapped_drop(trace, &trace->sites);
    }
    trace->sites = fresh;
    return true;
}

static bool is_definition(uint32_t kind, size_t bytes)
{
    return kind > 0 && kind < MS_DEFINE_KIND_COUNT && bytes <= MS_DEFINITION_MAX_BYTES;
}

bool ms_trace_define(ms_trace_t *trace, uint32_t kind, const void *payload, size_t bytes)
{
    const int saved = errno;
    const struct ms_site_entry entry = {kind, (uint32_t)bytes};
    bool defined = false, first_lost = false;

    if (!is_definition(kind, bytes)) {
        return false;
    }
    ms_trace_growing_acquire(trace);
    if (!trace->closed) {
        defined = put(trace, entry, payload) || (next(trace) && put(trace, entry, payload));
        if (!defined) {
            first_lost = trace->header->lost_definitions == 0;
            ms_trace_add(trace, &trace->header->lost_definitions, 1);
        }
    }
    ms_trace_growing_release(trace);
    if (first_lost) {
        ms_trace_note(trace, "there is no room in the trace for more call sites: from here on "
                             "memory is told without the code that asked for it");
    }
    errno = saved;
    return defined;
}
