/* SPDX-License-Identifier: Apache-2.0 */
/* C++ names as people write them. */
#ifndef MEMSHIM_REPORT_SYMBOLS_DEMANGLE_H
#define MEMSHIM_REPORT_SYMBOLS_DEMANGLE_H

#include <stddef.h>

#define MS_FUNCTION_NAME_BYTES 4096u /* of a name, demangled or not; longer ones end in "..." */

/* Loads the C++ library, as the first use does: for who starts processes that demangle. */
void ms_demangle_prepare(void);

/* The name that `symbol` stands for, or `symbol` itself where it is not a C++ name, or where no
 * C++ library is at hand to read it. Ended by a zero byte and cut to the room. The C++ library
 * allocates while it works. */
void ms_demangle(const char *symbol, char *out, size_t room);

#endif
