/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of blocks, tensors and proxies. */
#ifndef MEMSHIM_ALLOCATOR_BASE_IDS_H
#define MEMSHIM_ALLOCATOR_BASE_IDS_H

#include <stdint.h>

/* Never used twice in this process. The first of `count` new ones. */
uint64_t ms_ids_take(uint64_t count);

#endif
