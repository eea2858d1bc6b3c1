/* SPDX-License-Identifier: Apache-2.0 */
/* What every allocation and free of a tensor runs through stands together, code and data: a program
 * runs a great deal between two of them, and each line and page that is to be fetched anew costs
 * more than what is done there. */
#ifndef MEMSHIM_SHIM_PROCESS_HOT_H
#define MEMSHIM_SHIM_PROCESS_HOT_H

/* A variable that is read there and hardly ever written. */
#define MS_HOT_DATA __attribute__((section("ms_hot")))

/* A function that is called there; the linker puts these next to each other. */
#define MS_HOT __attribute__((hot))

#endif
