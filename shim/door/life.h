/* SPDX-License-Identifier: Apache-2.0 */
/* The start of the process. */
#ifndef MEMSHIM_SHIM_DOOR_LIFE_H
#define MEMSHIM_SHIM_DOOR_LIFE_H

/* Done once: when memshim is loaded, or at the first use of the driver if that comes first, in
 * another library's constructor. Keeps errno. */
void ms_life_begin(void);

#endif
