/* SPDX-License-Identifier: Apache-2.0 */
/* How many samples the program has in a batch, as MEMSHIM_BATCH says. */
#ifndef MEMSHIM_REPORT_READ_BATCH_H
#define MEMSHIM_REPORT_READ_BATCH_H

#include <stdint.h>

/* options: NAME=value lines, as the trace's header has them. 0: not given, or nothing usable. */
uint32_t ms_batch_samples(const char *options);

#endif
