/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that can only be put to the driver where that may do harm: in a throw-away process. */
#ifndef MEMSHIM_SHIM_PROCESS_PROBE_H
#define MEMSHIM_SHIM_PROCESS_PROBE_H

#include <stdint.h>

#include "shim/tables/probe_codes.h"

struct ms_probe_result {
    enum ms_probe_answer answer;
    int code;              /* enum ms_probe_code */
    int64_t remembered_ns; /* when it was found out, since 1970; 0: just now */
};

/* Runs `memshim NAME ARGUMENT` (argument may be null), without this library, and waits for it: 42 s
 * at most. Yes and no are remembered under `key` (shim/tables/remembered.h), a no for a day; null:
 * never. An unknown is never believed later, but processes that ask at the same time share it. A
 * folder that cannot be used is said. Any thread; the program's signals and children are as they
 * were. */
struct ms_probe_result ms_probe(const char *name, const char *argument, const char *key);

#endif
