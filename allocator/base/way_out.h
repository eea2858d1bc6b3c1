/* SPDX-License-Identifier: Apache-2.0 */
/* The end of every message about the program's end: it says how to run without memshim, so that
 * nobody has to search for it. shim/tables/options.h has the switch. */
#ifndef MEMSHIM_ALLOCATOR_BASE_WAY_OUT_H
#define MEMSHIM_ALLOCATOR_BASE_WAY_OUT_H

#define MS_WAY_OUT "MEMSHIM=off runs the program without memshim"

#endif
