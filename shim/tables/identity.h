/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is: run, rank, program, host. */
#ifndef MEMSHIM_SHIM_TABLES_IDENTITY_H
#define MEMSHIM_SHIM_TABLES_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

struct ms_ranks {
    int32_t rank;       /* -1: unknown */
    int32_t local_rank; /* -1: unknown */
    int32_t world_size; /* 0: unknown */
};

/* Too large for a small thread's stack. */
struct ms_identity {
    char run_id[128]; /* one folder for each run */
    char host[65];
    char program[64];   /* the base name of the script or of the executable */
    char command[4096]; /* the command line, shortened */
    struct ms_ranks ranks;
};

/* Reads a value from `environment` (NAME=value strings, null at the end; itself null after
 * clearenv); null if it is not set, or empty. */
const char *ms_environment(char *const *environment, const char *name);

/* torchrun's run id, otherwise Slurm's, otherwise `fallback` (null: the process has none of its
 * own, "run"). *restarts: how often the run was restarted, as far as the environment says. Pure. */
const char *ms_identity_run(char *const *environment, const char *fallback, int32_t *restarts);

/* A run's id, with a dot and the restart count if that is not 0. Pure. */
void ms_identity_name_run(const char *id, int32_t restarts, char *out, size_t out_bytes);

/* Both of the above. Pure. */
void ms_identity_run_id(char *const *environment, const char *fallback, char *out,
                        size_t out_bytes);

/* The ranks, by torchrun's variables, otherwise Slurm's. Pure. */
void ms_identity_ranks(char *const *environment, struct ms_ranks *out);

/* How many ranks of the run are on this machine, by torchrun's variables, otherwise Slurm's,
 * otherwise 1. Pure. */
uint32_t ms_identity_local_ranks(char *const *environment);

/* The program's name from a command line in the form of /proc/self/cmdline (`bytes` long, strings
 * one after the other). For Python: the script or module that it runs; likewise for the loader.
 * Pure. */
void ms_identity_program(const char *cmdline, size_t bytes, char *out, size_t out_bytes);

/* A start time as a run id, YYYYmmdd-HHMMSS-pid, in UTC. `out` has at least 40 bytes. Pure. */
void ms_identity_start_id(int64_t unix_seconds, long pid, char *out, size_t out_bytes);

/* The folder to use if the output folder cannot be written: on this machine, and the user's own.
 * Pure. */
void ms_identity_fallback_dir(char *const *environment, unsigned user, char *out, size_t out_bytes);

/* All of the above for this process. */
void ms_identity_read(struct ms_identity *out);

#endif
