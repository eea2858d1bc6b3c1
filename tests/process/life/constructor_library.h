/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEMSHIM_TESTS_PROCESS_CONSTRUCTOR_LIBRARY_H
#define MEMSHIM_TESTS_PROCESS_CONSTRUCTOR_LIBRARY_H

#include <cuda.h>

/* 1 MiB that was allocated before main; the caller frees it. */
__attribute__((visibility("default"))) CUdeviceptr constructor_block(void);

#endif
