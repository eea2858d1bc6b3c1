/* SPDX-License-Identifier: Apache-2.0 */
/* Says on stderr what is wrong, behind the name of the command. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_COMPLAINT_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_COMPLAINT_H

#include "shim/cli/arguments/complain.h"

#define complain(format, ...) (ms_complain("memshim dry-run: " format, ##__VA_ARGS__))

#endif
