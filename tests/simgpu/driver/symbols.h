/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own dynamic symbols: a driver exports what its version has, and nothing newer. */
#ifndef SIMGPU_SYMBOLS_H
#define SIMGPU_SYMBOLS_H

/* Hides the functions that are newer than SIMGPU_DRIVER_VERSION from every later look-up by name
 * (dlsym, and the binding of libraries that are loaded later). Called by the library's constructor;
 * what was bound before that, as a program linked with -lcuda is, keeps what it found. */
void sim_hide_newer_functions(void);

#endif
