/* SPDX-License-Identifier: Apache-2.0 */
/* Values that several options take. Each function reads all of `text`, or returns false and leaves
 * *out unchanged. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_VALUES_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole number. */
bool ms_cli_take_count(const char *text, uint64_t most, uint64_t *out);

/* A number in decimal digits, as in 0.5. */
bool ms_cli_take_number(const char *text, double least, double most, double *out);

/* The index of one of these names. */
bool ms_cli_take_name(const char *text, const char *const *names, size_t count, int *out);

/* The name of an existing file or folder. */
bool ms_cli_take_file(const char *text, const char **out);
bool ms_cli_take_folder(const char *text, const char **out);

bool ms_cli_is_folder(const char *path);

#endif
