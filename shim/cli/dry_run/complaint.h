/* SPDX-License-Identifier: Apache-2.0 */
/* Prints an error to stderr, after the command's name. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_COMPLAINT_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_COMPLAINT_H

#include "shim/cli/arguments/complain.h"

#define complain(format, ...) (ms_complain("memshim dry-run: " format, ##__VA_ARGS__))

#endif
