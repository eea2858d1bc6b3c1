/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: its trace survives SIGKILL, _exit, abort and a full disk, and the process survives
 * whatever happens to the trace's file (trace_file.h).
 *
 * One trace a process, in <output>/<run>/<program>-r<rank>-<host>-<pid>/trace.mshm. The records lie
 * in windows of that file, so an event is in the page cache, and outlives the process, once
 * ms_trace_emit returns. Part of the shim: uses libc only, not the application's heap (mmap), holds
 * no lock when it returns, and never waits for a device; errno stays as it was. Thread-safe; not
 * for signal handlers, but for ms_trace_leave. */
#ifndef MEMSHIM_REPORT_WRITE_WRITER_H
#define MEMSHIM_REPORT_WRITE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "report/trace/verdict.h"

typedef struct ms_trace ms_trace_t;

/* The process, as the report describes it. Strings are copied; null counts as an empty one. */
struct ms_trace_process {
    const char *run_id; /* name of the run's folder */
    const char *host;
    const char *command;    /* argv joined by spaces, shortened to 4 KiB */
    const char *program;    /* base name of script or executable, for the folder */
    const char *options;    /* NAME=value lines of the options that were set */
    const char *torch_mode; /* native, tensor, off */
    const char *memshim_version;
    int32_t pid, rank, local_rank, world_size; /* rank, local_rank: -1 unknown; world_size 0 */
    int32_t supervisor_pid; /* of the `memshim run` that completes its reports; 0: none */
    uint64_t start_unix_ns; /* when the process began: time 0 of the trace; 0: now */
};

struct ms_trace_config {
    const char *output_dir;   /* MEMSHIM_OUTPUT; created if missing */
    const char *fallback_dir; /* used if output_dir cannot be written, and named in `note` then, but
                                 only if it is this user's alone; may be null */
    uint64_t limit_bytes;     /* most bytes of event records kept (at least 1 MiB; 0: 512 MiB);
                                 older ones are dropped, sums and out-of-memories never */
    struct ms_trace_process process;
};

/* Makes the folder, the file and the run's `latest` link. Null: no place can be written. `note`
 * (may be null) then says why in one sentence, and also when the fallback is used. */
ms_trace_t *ms_trace_open(const struct ms_trace_config *config, char *note, size_t note_bytes);

/* The absolute path of this trace's folder, owned by the trace; valid after ms_trace_close, too. */
const char *ms_trace_dir(const ms_trace_t *trace);

/* Appends one event, and takes its time. A full disk costs records, never the run: the header
 * counts the lost ones. */
void ms_trace_emit(ms_trace_t *trace, const struct ms_event *event);

/* Reports a device that the process began to use. uuid: 16 bytes, or null. Its cap counts from here
 * on, as with MS_EVENT_CAP. May be called again. */
void ms_trace_device(ms_trace_t *trace, uint8_t device, const char *name, const uint8_t *uuid,
                     uint64_t total_bytes, uint64_t cap_bytes);

/* Fragmentation so far, as in the report (ms_aggregate_fragmentation_ppm): in millionths; -1:
 * nothing was reserved, or the trace is closed. Takes some microseconds: not for every event. */
int64_t ms_trace_fragmentation_ppm(ms_trace_t *trace, uint8_t device);

/* Versions once they are known: "driver", "cuda", "torch". */
void ms_trace_version(ms_trace_t *trace, const char *what, const char *version);

/* Records an out-of-memory with its whole state; kept for good. */
void ms_trace_oom(ms_trace_t *trace, uint8_t device, const struct ms_oom_state *state);

/* Records text for the report (a warning that was shown); cut at 2 KiB, 64 KiB in all. */
void ms_trace_note(ms_trace_t *trace, const char *text);

/* Appends a definition (definitions.h): kept for good, and readable before any event recorded after
 * this returns. False: there is no room, which a note says once. Definitions take at most half of
 * the trace's limit. */
bool ms_trace_define(ms_trace_t *trace, uint32_t kind, const void *payload, size_t bytes);

/* Ends the trace. exit_known: false if the process does not know its status. Later events of
 * threads that still run are dropped; the handle stays valid. A report made afterwards knows how
 * the process ended. 0, or an errno if the file could not be written to the end; ESTALE: somebody
 * has cut it. */
int ms_trace_close(ms_trace_t *trace, bool exit_known, int exit_status);

/* The process ends now, and the trace stays as it is: as that of a killed process, but with the
 * exit status. Takes no lock and touches no mapping, so signal handlers may call it, also while
 * this or another thread is inside the writer. Nothing after ms_trace_close. */
void ms_trace_leave(ms_trace_t *trace, int exit_status);

/* In a forked child: drops the mapping and the handle, without touching the parent's trace. */
void ms_trace_abandon(ms_trace_t *trace);

#endif
