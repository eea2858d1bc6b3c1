/* SPDX-License-Identifier: Apache-2.0 */
/* A line on the standard error, for people. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_COMPLAIN_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_COMPLAIN_H

/* Says one line; its end is added. Names in it may be anybody's (plain.h); a line that is longer
 * than 16 KiB is cut. */
void ms_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
