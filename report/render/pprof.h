/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of google/pprof (its proto/profile.proto), packed by gzip: what `go tool pprof`,
 * speedscope and others open. A sample is a call site of one device of one process. Its values have
 * the names of Go's heap profile, which tools know: inuse is live memory at the peak of the
 * device's live bytes, alloc is all memory ever asked for. */
#ifndef MEMSHIM_REPORT_RENDER_PPROF_H
#define MEMSHIM_REPORT_RENDER_PPROF_H

#include "allocator/base/buffer.h"
#include "allocator/base/strings.h"
#include "report/model/model.h"
#include "report/symbols/frame_table.h"

struct ms_pprof {
    struct ms_buffer samples;                   /* encoded */
    struct ms_buffer message, part, line, text; /* under construction */
    struct ms_strings strings;                  /* the profile's string table */
    struct ms_strings functions;                /* by name and file; ids are numbers + 1 */
    struct ms_strings mappings;                 /* by path; likewise */
    struct ms_strings locations;                /* by function, line and mapping; likewise */
    struct ms_buffer tables;                    /* functions, mappings and locations, encoded */
    uint64_t start_unix_ns, duration_ns;
    size_t processes;
};

void ms_pprof_begin(struct ms_pprof *pprof);

void ms_pprof_free(struct ms_pprof *pprof);

#endif
