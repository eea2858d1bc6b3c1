/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for driver functions that memshim does not know. Looking one up does no harm (a newer
 * runtime looks up everything when it starts), but calling it may. A stub reports its first call to
 * the gate, which refuses to close from then on. Every call ends in a jump to the driver's
 * function, with all its arguments.
 *
 * A stub whose name says that it begins a capture reports each call. In all known functions of that
 * kind, the first argument is the stream that captures. */
#ifndef MEMSHIM_SHIM_DOOR_STUBS_H
#define MEMSHIM_SHIM_DOOR_STUBS_H

/* The stub for this function; always the same one. If no stub is left, reports the name to the gate
 * at once, and returns the function itself. */
void *ms_stub_for(const char *name, void *function);

/* The program gets this function without a stub, so its calls will not be seen. */
void ms_stub_lacking(const char *name);

#endif
