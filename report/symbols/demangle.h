/* SPDX-License-Identifier: Apache-2.0 */
/* Demangles C++ names. */
#ifndef MEMSHIM_REPORT_SYMBOLS_DEMANGLE_H
#define MEMSHIM_REPORT_SYMBOLS_DEMANGLE_H

#include <stddef.h>

#define MS_FUNCTION_NAME_BYTES 4096u /* of a name, mangled or not; longer ones end in "..." */

/* Loads the C++ library, which the first use would load: for callers that start processes which
 * demangle. */
void ms_demangle_prepare(void);

/* Writes the demangled name; or `symbol` itself, if that is not a C++ name, or if there is no C++
 * library to demangle it. Ends with a zero byte and is cut to the room. The C++ library allocates
 * while it works. */
void ms_demangle(const char *symbol, char *out, size_t room);

#endif
