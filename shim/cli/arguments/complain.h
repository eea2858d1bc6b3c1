/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr, for people. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_COMPLAIN_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_COMPLAIN_H

/* Prints one line, and ends it. Names in it may come from anybody (plain.h). A line longer than 16
 * KiB is cut. */
void ms_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
