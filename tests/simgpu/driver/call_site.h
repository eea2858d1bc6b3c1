/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a driver function was called: kept with what it destroyed, printed when that is used again.
 * One call has one site, shared by all that it destroys. All under sim_lock.
 */
#ifndef SIMGPU_CALL_SITE_H
#define SIMGPU_CALL_SITE_H

#include <stdbool.h>
#include <stdint.h>

struct sim_call_site;

/* The calling thread enters a driver function of that exported name, and leaves it. True: the call
 * took a site, because it destroyed something. */
void sim_call_site_enter(const char *function);
bool sim_call_site_leave(void);

/* The site of the call that the thread is in, with one more reference; of a thread of the simulated
 * GPU, or without host memory, a site that says so. Never NULL. */
struct sim_call_site *sim_call_site_here(void);
/* NULL is allowed. */
void sim_call_site_release(struct sim_call_site *site);

/* Ends the process: says on stderr that the call that the thread is in uses a handle that was
 * destroyed at `destruction`. `kind` is what the handle was used as. */
_Noreturn void sim_call_site_abort(const char *kind, const void *handle,
                                   const struct sim_call_site *destruction);

/* Loads what a backtrace needs, which allocates and loads a library the first time. */
void sim_call_site_prepare(void);

#endif
