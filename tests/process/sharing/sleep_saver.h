/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that can sleep, as vLLM's sleep mode and torch_memory_saver have them: each is one chunk
 * of the program's own, mapped at an address that stays. Asleep its contents lie on the host, and
 * no chunk is behind it. */
#ifndef MEMSHIM_TESTS_PROCESS_SLEEP_SAVER_H
#define MEMSHIM_TESTS_PROCESS_SLEEP_SAVER_H

#include <cuda.h>

/* bytes: a multiple of the granule. The calling thread has a context. */
CUresult saver_new(CUdeviceptr *at, size_t bytes);
CUresult saver_delete(CUdeviceptr at);

/* Of all regions. */
CUresult saver_sleep(void);
CUresult saver_wake(void);

/* Whether the chunk that the saver made for it stands behind each region's address. */
int saver_has_its_own(void);

#endif
