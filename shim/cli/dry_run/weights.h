/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that a command's words name, or the model that they describe: known before anything
 * runs. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_WEIGHTS_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

/* Says how much of this machine's memory the command takes where each of so many processes loads
 * the weights there before a device, and whether limit_bytes are enough. Weights are those of each
 * folder or file that a word names, or what stands behind its first '='. With `configs`, the same
 * for the model of a folder with a config.json alone, or of a config.json, which such a job
 * initialises. Nothing is said where there is neither. */
void ms_dry_weights_say(char *const *command, uint64_t processes, uint64_t limit_bytes,
                        bool configs);

#endif
