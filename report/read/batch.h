/* SPDX-License-Identifier: Apache-2.0 */
/* The number of samples in the program's batch, from MEMSHIM_BATCH. */
#ifndef MEMSHIM_REPORT_READ_BATCH_H
#define MEMSHIM_REPORT_READ_BATCH_H

#include <stdint.h>

/* options: NAME=value lines of the trace's header. 0: not given, or unusable. */
uint32_t ms_batch_samples(const char *options);

#endif
