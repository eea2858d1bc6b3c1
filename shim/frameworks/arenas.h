/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries whose own arenas stay blocks to memshim: the report says so. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_ARENAS_H
#define MEMSHIM_SHIM_FRAMEWORKS_ARENAS_H

/* The process ends: a note in the report for each that is loaded. */
void ms_arenas_end(void);

#endif
