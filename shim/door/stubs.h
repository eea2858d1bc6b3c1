/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for functions of the driver's that nobody here knows. To ask for one does no harm (a
 * newer runtime asks for everything when it starts); to call it may. A stub notes the first call at
 * the gate, which refuses to close from then on, and every call ends in a jump to the driver's
 * function, with all that it was given.
 *
 * One that by its name begins a capture is noted at each call: what it captures is, by all the
 * functions of that kind that there are, the stream that comes first. */
#ifndef MEMSHIM_SHIM_DOOR_STUBS_H
#define MEMSHIM_SHIM_DOOR_STUBS_H

/* The stub of this function; the same one each time. Where no stub is left the name is noted at the
 * gate at once, and the function itself is the answer. */
void *ms_stub_for(const char *name, void *function);

/* A function that is given away without a stub: its calls will not be seen. */
void ms_stub_lacking(const char *name);

#endif
