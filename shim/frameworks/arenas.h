/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries whose own arenas remain plain blocks to memshim, which the report mentions. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_ARENAS_H
#define MEMSHIM_SHIM_FRAMEWORKS_ARENAS_H

/* At the end of the process: adds a note to the report for each of them that is loaded. */
void ms_arenas_end(void);

#endif
