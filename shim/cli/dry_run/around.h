/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run puts around a command: a world of ranks, weights and data that a hub would send.
 */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_AROUND_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_AROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_dry_around {
    uint64_t world; /* of which one rank runs alone; 0: all run */
    bool only;
    const char *weights;   /* the folder that lacks its weights; null: none */
    const char *data_stub; /* the file of data sets; null: none */
};

bool ms_dry_around_any(const struct ms_dry_around *around);

/* False, and it has been said why: one rank has no launcher, and both options. */
bool ms_dry_around_check(const struct ms_dry_around *around, char *const *command);

/* The words of doubles/around.py, each of which ends at a 0 byte. False, and it has been said why.
 */
bool ms_dry_around_words(const struct ms_dry_around *around, uint64_t devices, bool allow_writes,
                         char *const *command, struct ms_buffer *words);

#endif
