/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run stands on: a card, and the simulated GPU that stands for it. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/devices.h"

/* A card by its name in devices.def; by a size, which is an H100 with so much memory; or by a file
 * of lines `KEY VALUE`: name, memory, context, capability, processors, of which memory is needed.
 * False, and it has been said why. */
bool ms_dry_card_take(const char *text, struct ms_card *card);

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

/* A folder in memory, and its end with all files in it. path: PATH_MAX bytes. What a dry run that
 * was killed left there goes first. */
bool ms_dry_shared_make(char *path);
void ms_dry_shared_remove(const char *path);

/* Removes such folders of this user whose process has ended. */
void ms_dry_shared_sweep(void);

/* What a process asked for in vain: the highest device, -1: none; a host, empty: none. */
void ms_dry_shared_asked(const char *path, int *device, char *host, size_t host_bytes);

/* The most that a call of a recurrent network of cuDNN's double took; 0: there was none. */
void ms_dry_shared_cudnn(const char *path, uint64_t *work_bytes, uint64_t *reserve_bytes);

#endif
