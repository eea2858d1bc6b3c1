/* SPDX-License-Identifier: Apache-2.0 */
/* Where a driver function was called. The site is kept with what the call destroyed, and printed
 * when that is used again. One call has one site, shared by all that it destroyed. All under
 * sim_lock. */
#ifndef SIMGPU_CALL_SITE_H
#define SIMGPU_CALL_SITE_H

#include <stdbool.h>
#include <stdint.h>

struct sim_call_site;

/* The calling thread enters a driver function of that exported name, and leaves it. leave returns
 * true if the call used a site, because it destroyed something. */
void sim_call_site_enter(const char *function);
bool sim_call_site_leave(void);

/* The site of this thread's call, with one more reference. For a thread of the simulated GPU, or
 * without host memory, a site that says so. Never NULL. */
struct sim_call_site *sim_call_site_here(void);
/* NULL is allowed. */
void sim_call_site_release(struct sim_call_site *site);

/* Ends the process, after a line on stderr: this thread's call uses a handle that was destroyed at
 * `destruction`. `kind` is what the call takes the handle for. */
_Noreturn void sim_call_site_abort(const char *kind, const void *handle,
                                   const struct sim_call_site *destruction);

/* Loads what a backtrace needs, because the first backtrace allocates and loads a library. */
void sim_call_site_prepare(void);

#endif
