/* SPDX-License-Identifier: Apache-2.0 */
/* What every line that tells of the program's end ends with, so that nobody who only wants the
 * program to run has to look for it. shim/tables/options.h has the switch. */
#ifndef MEMSHIM_ALLOCATOR_BASE_WAY_OUT_H
#define MEMSHIM_ALLOCATOR_BASE_WAY_OUT_H

#define MS_WAY_OUT "MEMSHIM=off runs the program without memshim"

#endif
