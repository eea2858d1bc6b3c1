/* Which functions and graphs have been launched before. Lock-free, of fixed size: when it is full,
 * what is new counts as seen, so that nothing is measured twice without end. */
#ifndef MEMSHIM_SHIM_SERVE_SEEN_H
#define MEMSHIM_SHIM_SERVE_SEEN_H

#include <stdbool.h>

/* True where the handle is known; otherwise it is from now on. */
bool ms_seen(const void *handle);

/* The handle is gone, and may be given to something else. */
void ms_unseen(const void *handle);

#endif
