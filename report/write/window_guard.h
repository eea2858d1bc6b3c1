/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps SIGBUS away from the program while the trace's windows are mappings of its file.
 *
 * A store to such a mapping raises SIGBUS when the file was cut by somebody else (`truncate -s 0`),
 * when a file system that promised space has none, and on an I/O error. None of these can be seen
 * beforehand: a check of the size leaves a gap before the store. The windows are still mappings,
 * with a handler, because the alternatives are worse:
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
 * The handler interferes as little as possible. It is installed only while a trace is mapped. It
 * handles only faults in our windows: it puts memory of the process's own there, so that the store
 * succeeds and the trace ends. All other signals go to the action that was there before. If the
 * program later installs a handler of its own, ours is not put back; and it cannot help a thread
 * that blocks SIGBUS. ms_guard_stands reports both cases, and the writer then gives up its mappings
 * for good. The writer asks once in MS_TAIL_EVENTS events: a program that installs a handler and
 * whose trace is cut within these gets the signal. */
#ifndef MEMSHIM_REPORT_WRITE_WINDOW_GUARD_H
#define MEMSHIM_REPORT_WRITE_WINDOW_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Guards `bytes` from `from` on: adjacent extents (MS_EXTENT_BYTES). A fault in one of them
 * replaces it by zeros of the process's own and sets *error to an errno. False: nothing is guarded,
 * because there is no room for another trace or no handler can be installed. Not for several
 * threads at once. */
bool ms_guard_add(char *from, size_t bytes, _Atomic int *error);

/* The last one removes the handler, if it is still installed. */
void ms_guard_remove(const char *from);

/* Whether the handler would get a fault in this thread now. */
bool ms_guard_stands(void);

#endif
