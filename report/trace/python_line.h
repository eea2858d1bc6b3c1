/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of Python code. */
#ifndef MEMSHIM_REPORT_TRACE_PYTHON_LINE_H
#define MEMSHIM_REPORT_TRACE_PYTHON_LINE_H

#include <stdint.h>

#include "report/trace/definitions.h"

/* The line of an instruction of a code object, by its version's table (CPython's
 * Objects/lnotab_notes.txt and InternalDocs/code_objects.md). 0: the table has none. Pure. */
uint32_t ms_python_line(const struct ms_code_definition *code, const uint8_t *table,
                        uint32_t instruction);

#endif
