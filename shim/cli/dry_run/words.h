/* SPDX-License-Identifier: Apache-2.0 */
/* What a command's words say of how it is started. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_WORDS_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_WORDS_H

#include "allocator/base/buffer.h"

/* Appends the words of the command, each with a 0 byte at its end, and an empty one after the last.
 * Where a shell is given a script (sh -c SCRIPT), the script's words follow, with an empty one
 * after each of its commands; quotes and substitutions are not read. */
void ms_dry_words(char *const *command, struct ms_buffer *words);

/* The first launcher of several processes that is called there (torchrun and its like); null: none.
 * It points into `words`. */
const char *ms_dry_words_launcher(const struct ms_buffer *words);

#endif
