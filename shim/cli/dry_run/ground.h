/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up the simulated GPU that stands for a card. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_GROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fit/cards.h"

/* Preloads the simulated GPU's libraries before all others, and the stand-ins for the wheels of the
 * command's Python, which it makes first if they are missing. False, after an error message. */
bool ms_dry_ground_preload(char *const *command);

/* Also preloads the library that reports how PyTorch reads values, before libmemshim.so: call it
 * last. */
bool ms_dry_ground_readers(void);

/* Makes the weights of the model whose config.json is in that folder, as files of holes, in the
 * cache folder; made: PATH_MAX bytes, the folder that they are in. False, and it has been said why:
 * also where so many processes have no room for a tensor each. */
bool ms_dry_ground_weights(char *const *command, const char *folder, uint64_t host_bytes,
                           uint64_t processes, char *made);

/* Checks a description of data sets. False, after an error message. */
bool ms_dry_ground_data(char *const *command, const char *path);

/* A model that is made from a config alone: how much memory its parameters take. */
struct ms_dry_model {
    uint64_t elements, bytes; /* bytes: in the type that the config names */
    char type[32];
};

/* Counts the model whose config.json is in that folder, with the command's Python. False: it cannot
 * be known, for example without transformers; nothing is said. */
bool ms_dry_ground_count(char *const *command, const char *folder, struct ms_dry_model *model);

/* Puts the command's Python and doubles/around.py with these words, each of which ends with a 0
 * byte, before the command. wrapped: release it with free(); the words stay the caller's. False,
 * after an error message. */
bool ms_dry_ground_wrap(char *const *command, const struct ms_buffer *words, char ***wrapped);

/* Sets the environment in which this many such cards exist. random: values that no kernel computed
 * are random; otherwise they are zero. late: the host learns that work has ended only when it waits
 * for it; otherwise at once. `shared`: a folder for what the cards' processes share. */
bool ms_dry_ground_set(const struct ms_card *card, uint64_t total_bytes, uint64_t devices,
                       bool random, bool late, const char *shared);

#endif
