/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the driver that may do harm, and so are asked in a throw-away process. */
#ifndef MEMSHIM_SHIM_PROCESS_PROBE_H
#define MEMSHIM_SHIM_PROCESS_PROBE_H

#include <stdint.h>

#include "shim/tables/probe_codes.h"

struct ms_probe_result {
    enum ms_probe_answer answer;
    int code;              /* enum ms_probe_code */
    int64_t remembered_ns; /* when it was found out, since 1970; 0: just now */
};

/* Runs `memshim NAME ARGUMENT` (argument may be null), without this library, and waits for it, 42 s
 * at most. Remembers yes and no under `key` (shim/tables/remembered.h), a no for a day; null:
 * remembers nothing. An unknown is never used later, but processes that ask at the same time share
 * it. Logs it if the cache folder cannot be used. Any thread; the program's signals and children
 * are not affected. */
struct ms_probe_result ms_probe(const char *name, const char *argument, const char *key);

#endif
