/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which attempt of a run a process belongs to, if its launcher does not say.
 *
 * torchrun starts all ranks again when one fails, but counts that only on the host of the failed
 * rank. The folders of the attempts, <output>/<run>, <output>/<run>.1, ..., show it to the other
 * hosts: attempts follow each other, and each rank is in each of them once. */
#ifndef MEMSHIM_REPORT_WRITE_ATTEMPT_H
#define MEMSHIM_REPORT_WRITE_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "report/write/writer.h"

/* The attempt, 0 for the first; at least `least`, the launcher's count. process: all fields but
 * run_id. leads: the launcher started this process itself, as the first of its rank; other
 * processes belong to the newest attempt. */
int32_t ms_attempt_find(const char *output, const char *run, const struct ms_trace_process *process,
                        int32_t least, bool leads);

#endif
