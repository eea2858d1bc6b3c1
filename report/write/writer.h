/* SPDX-License-Identifier: Apache-2.0 */
/* The writer half: a trace that survives SIGKILL, _exit, abort and a full disk, in a process that
 * survives whatever becomes of the trace's file (trace_file.h).
 *
 * One trace a process, in <output>/<run>/<program>-r<rank>-<host>-<pid>/trace.mshm. The records
 * lie in windows of that file, so what ms_trace_emit has returned from is in the page cache and
 * outlives the process. Links into the shim: libc only, no heap of the application's
 * (mmap), no lock held when it returns, no call that can wait for a device; errno stays as it was.
 * Thread-safe; not for signal handlers. */
#ifndef MEMSHIM_REPORT_WRITE_WRITER_H
#define MEMSHIM_REPORT_WRITE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "report/trace/verdict.h"

typedef struct ms_trace ms_trace_t;

/* Everything about the process that the report repeats. Strings are copied, null is an empty one.
 */
struct ms_trace_process {
    const char *run_id; /* folder name of the run */
    const char *host;
    const char *command;    /* argv joined by spaces, shortened to 4 KiB */
    const char *program;    /* script or executable base name, for the folder */
    const char *options;    /* NAME=value lines of the options that were set */
    const char *torch_mode; /* native, tensor, off */
    const char *memshim_version;
    int32_t pid, rank, local_rank, world_size; /* rank, local_rank: -1 unknown; world_size 0 */
    int32_t supervisor_pid; /* of the `memshim run` that completes its reports; 0: none */
    uint64_t start_unix_ns; /* when the process began: time 0 of the trace; 0: now */
};

struct ms_trace_config {
    const char *output_dir;   /* MEMSHIM_OUTPUT; created where missing */
    const char *fallback_dir; /* used, and named in `note`, where output_dir cannot be written, but
                                 only where it is this user's alone; may be null */
    uint64_t limit_bytes;     /* most bytes of event records kept (at least 1 MiB; 0: 512 MiB);
                                 older ones are dropped, sums and OOMs never */
    struct ms_trace_process process;
};

/* Makes the folder, the file and the run's `latest` link. Returns null where no place can be
 * written; `note` (may be null) then says why in one sentence, and also where the fallback is used.
 */
ms_trace_t *ms_trace_open(const struct ms_trace_config *config, char *note, size_t note_bytes);

/* The folder of this trace, an absolute path owned by it; also after ms_trace_close. */
const char *ms_trace_dir(const ms_trace_t *trace);

/* Appends one event; its time is taken inside. A full disk costs records, never the run: the count
 * of those lost stands in the header. */
void ms_trace_emit(ms_trace_t *trace, const struct ms_event *event);

/* A device that the process began to use. uuid: 16 bytes, or null. Its cap counts from here on, as
 * with MS_EVENT_CAP. May be called again. */
void ms_trace_device(ms_trace_t *trace, uint8_t device, const char *name, const uint8_t *uuid,
                     uint64_t total_bytes, uint64_t cap_bytes);

/* Fragmentation so far, as the report has it (ms_aggregate_fragmentation_ppm): in millionths, -1
 * where nothing was reserved, or the trace is closed. Some microseconds, not for every event. */
int64_t ms_trace_fragmentation_ppm(ms_trace_t *trace, uint8_t device);

/* Versions once they are known: "driver", "cuda", "torch". */
void ms_trace_version(ms_trace_t *trace, const char *what, const char *version);

/* An out-of-memory, with the whole state; kept for good, in full. */
void ms_trace_oom(ms_trace_t *trace, uint8_t device, const struct ms_oom_state *state);

/* Free text that the report repeats (a warning that was said); cut at 2 KiB, 64 KiB in all. */
void ms_trace_note(ms_trace_t *trace, const char *text);

/* Appends a definition (definitions.h): kept for good, in full, and readable before any event that
 * is recorded after this returns. False, and said once in the trace's notes, where there is no
 * room: half of the trace's limit is the most that definitions take. */
bool ms_trace_define(ms_trace_t *trace, uint32_t kind, const void *payload, size_t bytes);

/* The end: exit_known false where the status is not known in the process. What other threads, which
 * may still run, tell from then on is dropped; the handle itself stays for good. A report that is
 * made after it knows how the process ended. 0, or an errno where the file could not be written to
 * the end: ESTALE where somebody has cut it. */
int ms_trace_close(ms_trace_t *trace, bool exit_known, int exit_status);

/* In a fork child: drops the mapping, and the handle with it, without touching the parent's trace.
 */
void ms_trace_abandon(ms_trace_t *trace);

#endif
