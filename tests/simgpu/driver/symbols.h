/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own dynamic symbols: a driver exports the functions of its version, and nothing
 * newer. */
#ifndef SIMGPU_SYMBOLS_H
#define SIMGPU_SYMBOLS_H

/* Hides functions newer than SIMGPU_DRIVER_VERSION from later look-ups by name (dlsym, and the
 * binding of libraries that are loaded later). The library's constructor calls this. What was bound
 * before, as in a program linked with -lcuda, stays bound. */
void sim_hide_newer_functions(void);

#endif
