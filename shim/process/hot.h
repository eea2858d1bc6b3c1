/* SPDX-License-Identifier: Apache-2.0 */
/* Code and data that every allocation and free of a tensor uses are placed together. Between two of
 * them a program runs much other code, so fetching another cache line or page costs more than the
 * work itself. */
#ifndef MEMSHIM_SHIM_PROCESS_HOT_H
#define MEMSHIM_SHIM_PROCESS_HOT_H

/* A variable that this code reads, and that seldom changes. */
#define MS_HOT_DATA __attribute__((section("ms_hot")))

/* A function that this code calls; the linker places these next to each other. */
#define MS_HOT __attribute__((hot))

#endif
