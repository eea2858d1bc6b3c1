/* SPDX-License-Identifier: Apache-2.0 */
/* Whether code is NCCL's, by its symbols and whatever its file is called.
 *
 * A library that exports NCCL's interface is NCCL. Where NCCL was linked statically into a program
 * or library, the symbol table of that file has NCCL's functions, unless it was stripped. There,
 * functions are NCCL's if their name, or a type in it, is. */
#ifndef MEMSHIM_SHIM_DRIVER_NCCL_CODE_H
#define MEMSHIM_SHIM_DRIVER_NCCL_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/elf.h"

struct ms_nccl_code;

/* Whether a library exports NCCL's interface. */
bool ms_nccl_exported(const struct ms_loaded_elf *elf);

/* NCCL's functions in an object that has other code, too; null if there are none. Reads the
 * object's file. Never freed: there is one for each object that was asked about. */
const struct ms_nccl_code *ms_nccl_linked(const struct ms_loaded_elf *elf);

bool ms_nccl_code_has(const struct ms_nccl_code *code, uintptr_t addr);

#endif
