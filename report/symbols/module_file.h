/* SPDX-License-Identifier: Apache-2.0 */
/* A module's file, read with elfutils: in a process that may die of it. */
#ifndef MEMSHIM_REPORT_SYMBOLS_MODULE_FILE_H
#define MEMSHIM_REPORT_SYMBOLS_MODULE_FILE_H

#include <stdio.h>

#include "report/symbols/symbols.h"

/* Loads libdw, for who will start processes that use it. False: this machine has none. */
bool ms_module_file_prepare(void);

/* Writes all answers (answers.h) but the last. What libdwfl holds it leaves there: the process ends
 * after it. */
void ms_module_file_answer(const struct ms_symbols_request *request, FILE *to);

#endif
