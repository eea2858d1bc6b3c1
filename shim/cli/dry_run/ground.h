/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run stands on: the simulated GPU that stands for a card. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/devices.h"

/* Puts the simulated GPU's libraries before all that is preloaded, and those made for the wheels of
 * the command's Python, which are made where they are not there yet. False, and it has been said
 * why. */
bool ms_dry_ground_preload(char *const *command);

/* And what tells it how PyTorch reads values, before libmemshim.so is preloaded: call it last. */
bool ms_dry_ground_readers(void);

/* Makes the weights of the model whose config.json is in that folder, as files of holes, in the
 * cache folder; made: PATH_MAX bytes, the folder that they are in. False, and it has been said why.
 */
bool ms_dry_ground_weights(char *const *command, const char *folder, char *made);

/* `command` behind the command's Python and doubles/around.py with these words, each of which ends
 * at a 0 byte. wrapped: free() gives it back, and the words stay the caller's. False, and it has
 * been said why. */
bool ms_dry_ground_wrap(char *const *command, const struct ms_buffer *words, char ***wrapped);

/* The environment in which those are so many such cards. random: values that no kernel computed are
 * drawn, else zeros. late: the host learns of the end of work when it has
 * waited for it, else at once. `shared`: a folder for what their processes share. */
bool ms_dry_ground_set(const struct ms_card *card, uint64_t total_bytes, uint64_t devices,
                       bool random, bool late, const char *shared);

#endif
