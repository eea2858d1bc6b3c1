/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of this process: opened when a device is first used, closed when the process ends. */
#ifndef MEMSHIM_SHIM_PROCESS_SESSION_H
#define MEMSHIM_SHIM_PROCESS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "report/write/writer.h"

/* The process begins to use a device (a context or an allocation is made): opens the trace at the
 * first call, notes the device, and says the line of the device's first use. Once per device; any
 * thread; no lock of the serving half may be held. uuid: 16 bytes. */
void ms_session_device(int device, const char *name, const uint8_t *uuid, uint64_t total_bytes,
                       uint64_t cap_bytes);

/* The trace, null before the first device, where MEMSHIM_TRACE=off, where nothing could be written,
 * and in a fork child. Good until the process ends. */
ms_trace_t *ms_session_trace(void);

/* Appends to the trace, where there is one. Good from the start of the process. */
void ms_session_emit(const struct ms_event *event);
struct ms_event_sink ms_session_sink(void);

/* Text that the report repeats; kept until the trace opens. Versions likewise ("driver", "cuda",
 * "torch"; ms_trace_version). */
void ms_session_note(const char *text);
void ms_session_version(const char *what, const char *version);

/* The process ends: closes the trace, writes the report, says where it is. */
void ms_session_end(int status);

/* The process ends in the midst of a call, whose locks are not given back: says what can be done
 * with the trace, which is that of a killed process. */
void ms_session_left(void);

/* In a forked child: it lets go of the parent's trace. */
void ms_session_fork_child(void);

#endif
