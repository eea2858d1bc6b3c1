/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps SIGBUS away from the program where the trace's windows are mappings of its file.
 *
 * A store to such a mapping raises SIGBUS when the file was cut by somebody else (`truncate -s 0`),
 * when a file system that promised space has none, and on an I/O error. None of these can be seen
 * beforehand: a check of the size leaves a gap before the store. Why the windows are mappings all
 * the same, and why a handler:
 *
 *   memory of the process, written   loses up to a window of records at SIGKILL, which a trace is
 *   when a window is full            to survive
 *   pwrite for every event           survives everything and is what trace_file.h falls back to; a
 *                                    call into the kernel costs ten times what an event costs
 *   memfd, or a keeper process       a memfd ends with the process; a keeper is a child that the
 *                                    program did not start, and dies with the process where a
 *                                    container is out of memory
 *   /dev/shm, System V segments      outlive the process, not the container nor the machine: a
 *                                    report made elsewhere would miss the newest events; and each
 *                                    killed process would leave one behind
 *   leases                           make every reader of the trace wait
 *   file modes                       do not stop root, and every container's user is root
 *
 * The handler is as small a guest as it can be. It is there only while a trace is mapped. It takes
 * faults of the kernel's in our windows, where it puts memory of the process's own, so that the
 * store succeeds and the trace ends. All else goes to whatever stood there before, with the default
 * action as the default. It is never put back where the program, later, installs a handler of its
 * own, and it cannot help a thread that blocks SIGBUS: ms_guard_stands tells of both, and the
 * writer then leaves its mappings for good. It asks once in MS_TAIL_EVENTS events: a program that
 * installs a handler and whose trace is cut within these gets the signal. */
#ifndef MEMSHIM_REPORT_WRITE_WINDOW_GUARD_H
#define MEMSHIM_REPORT_WRITE_WINDOW_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Guards `bytes` from `from` on, which are extents (MS_EXTENT_BYTES) side by side. A fault in one
 * of them replaces it by zeros of the process's own and puts an errno into *error. False: nothing
 * is guarded, there is no room for another trace or no handler can be installed. Not at once in
 * several threads. */
bool ms_guard_add(char *from, size_t bytes, _Atomic int *error);

/* The last one takes the handler away, where it still stands. */
void ms_guard_remove(const char *from);

/* Whether a fault in this thread, now, would come to the handler. */
bool ms_guard_stands(void);

#endif
