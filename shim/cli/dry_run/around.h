/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run puts around a command: a world of ranks, and stand-ins for weights and data that a
 * hub would send. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_AROUND_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_AROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_dry_around {
    uint64_t world; /* size of the world of which one rank runs alone; 0: all run */
    bool only;
    const char *weights;   /* the folder that lacks its weights; null: none */
    const char *data_stub; /* the file of data sets; null: none */
    /* How many processes load them, and what all may take of the host; 0: not known. */
    uint64_t processes, host_bytes;
};

bool ms_dry_around_any(const struct ms_dry_around *around);

/* False, after an error message: --only needs --ranks-of and the reverse, and has no launcher. */
bool ms_dry_around_check(const struct ms_dry_around *around, char *const *command);

/* The arguments for doubles/around.py, each with a 0 byte at its end. False, after an error
 * message. */
bool ms_dry_around_words(const struct ms_dry_around *around, uint64_t devices, bool allow_writes,
                         char *const *command, struct ms_buffer *words);

#endif
