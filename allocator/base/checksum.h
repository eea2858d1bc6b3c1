/* SPDX-License-Identifier: Apache-2.0 */
/* A fast checksum against damaged files. It does not protect against deliberate damage. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CHECKSUM_H
#define MEMSHIM_ALLOCATOR_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Never 0, so that 0 can mean "none". Four lanes of 64-bit words, each folded as
 * lane = rotate_left(lane ^ word, 29) * 0x9e3779b97f4a7c15, the tail padded with zeros; then the
 * lanes and the length are folded into one. */
uint64_t ms_checksum(const void *data, size_t bytes);

#endif
