/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of this process. It is opened when a device is first used, and closed when the process
 * ends. */
#ifndef MEMSHIM_SHIM_PROCESS_SESSION_H
#define MEMSHIM_SHIM_PROCESS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "report/write/writer.h"

/* The process begins to use a device (makes a context or an allocation). The first call opens the
 * trace; each call notes its device and logs the line of its first use. Once per device; any
 * thread; the caller holds no lock of the serving half. uuid: 16 bytes. */
void ms_session_device(int device, const char *name, const uint8_t *uuid, uint64_t total_bytes,
                       uint64_t cap_bytes);

/* The trace. Null before the first device, with MEMSHIM_TRACE=off, if nothing could be written, and
 * in a fork child. Valid until the process ends. */
ms_trace_t *ms_session_trace(void);

/* Appends to the trace, if there is one. May be called from the start of the process on. */
void ms_session_emit(const struct ms_event *event);
struct ms_event_sink ms_session_sink(void);

/* A text that the report repeats; kept until the trace opens. Versions likewise ("driver", "cuda",
 * "torch"; ms_trace_version). */
void ms_session_note(const char *text);
void ms_session_version(const char *what, const char *version);

/* The process ends: closes the trace, has the report made, and logs where it is. */
void ms_session_end(int status);

/* The process ends at once: notes its status in the trace, which stays open. Takes no lock, and may
 * be called by a signal's handler. */
void ms_session_leave(int status);

/* The process ends inside a call, whose locks are never released. Leaves the trace, and logs what
 * the user can do with it. */
void ms_session_left(int status);

/* In a forked child: drops the parent's trace. */
void ms_session_fork_child(void);

#endif
