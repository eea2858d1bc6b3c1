/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a module's file with elfutils, in a process that may crash. */
#ifndef MEMSHIM_REPORT_SYMBOLS_MODULE_FILE_H
#define MEMSHIM_REPORT_SYMBOLS_MODULE_FILE_H

#include <stdio.h>

#include "report/symbols/symbols.h"

/* Loads libdw, for callers that start processes which use it. False: this machine has none. */
bool ms_module_file_prepare(void);

/* Writes all answers (answers.h) but the last. Frees nothing of libdwfl's: the process ends after
 * it. */
void ms_module_file_answer(const struct ms_symbols_request *request, FILE *to);

#endif
