/* SPDX-License-Identifier: Apache-2.0 */
/* Which allocations get a call site if not all do: a Poisson process over the bytes that a thread
 * asks for. */
#ifndef MEMSHIM_SHIM_SITES_SAMPLE_H
#define MEMSHIM_SHIM_SITES_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* True with probability 1 - exp(-bytes / mean_bytes), independently of every other call. A few
 * instructions when it is false. */
bool ms_sample_takes(uint64_t bytes, uint64_t mean_bytes);

#endif
