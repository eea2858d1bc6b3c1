/* SPDX-License-Identifier: Apache-2.0 */
/* Which attempt of a run a process belongs to, where its launcher does not say.
 *
 * torchrun starts all ranks again when one fails, and counts that on the host where it failed
 * alone. The folders of the attempts, <output>/<run>, <output>/<run>.1, ..., tell the others:
 * attempts follow each other, and each rank is in one of them once. */
#ifndef MEMSHIM_REPORT_WRITE_ATTEMPT_H
#define MEMSHIM_REPORT_WRITE_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "report/write/writer.h"

/* The attempt, 0 for the first; at least `least`, what the launcher says. process: all but run_id.
 * leads: the launcher started this process itself, and no process of that rank did; the others
 * belong to the newest attempt. */
int32_t ms_attempt_find(const char *output, const char *run, const struct ms_trace_process *process,
                        int32_t least, bool leads);

#endif
