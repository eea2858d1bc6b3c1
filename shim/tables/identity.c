/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a process in its run: the run's id, its ranks, its program. */
#include "shim/tables/identity.h"
#include "allocator/base/path.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *ms_environment(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (char *const *variable = environment; variable != NULL && *variable != NULL; variable++) {
        if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=') {
            const char *value = *variable + length + 1;
            return *value != '\0' ? value : NULL;
        }
    }
    return NULL;
}

/* A whole number of at most nine digits; `fallback` for anything else. */
static int32_t number_of(const char *text, int32_t fallback)
{
    int32_t number = 0;
    size_t length = text != NULL ? strlen(text) : 0;
    if (length == 0 || length > 9 || strspn(text, "0123456789") != length) {
        return fallback;
    }
    for (; *text != '\0'; text++) {
        number = number * 10 + (*text - '0');
    }
    return number;
}

const char *ms_identity_run(char *const *environment, const char *fallback, int32_t *restarts)
{
    const char *elastic = ms_environment(environment, "TORCHELASTIC_RUN_ID");
    const char *slurm = ms_environment(environment, "SLURM_JOB_ID");
    const char *id = fallback != NULL ? fallback : "run";
    *restarts = number_of(ms_environment(environment, "TORCHELASTIC_RESTART_COUNT"), 0);
    if (elastic != NULL && strcmp(elastic, "none") != 0) { /* torchrun's value without --rdzv-id */
        id = elastic;
    } else if (slurm != NULL) {
        id = slurm;
        *restarts += number_of(ms_environment(environment, "SLURM_RESTART_COUNT"), 0);
    }
    return id;
}

void ms_identity_name_run(const char *id, int32_t restarts, char *out, size_t out_bytes)
{
    if (restarts > 0) {
        (void)snprintf(out, out_bytes, "%.100s.%d", id, restarts);
    } else {
        (void)snprintf(out, out_bytes, "%.100s", id);
    }
}

void ms_identity_run_id(char *const *environment, const char *fallback, char *out, size_t out_bytes)
{
    int32_t restarts = 0;
    const char *id = ms_identity_run(environment, fallback, &restarts);
    ms_identity_name_run(id, restarts, out, out_bytes);
}

void ms_identity_ranks(char *const *environment, struct ms_ranks *out)
{
    static const char *const names[][2] = {
        {"RANK", "SLURM_PROCID"}, {"LOCAL_RANK", "SLURM_LOCALID"}, {"WORLD_SIZE", "SLURM_NTASKS"}};
    int32_t values[3] = {-1, -1, 0};
    for (int i = 0; i < 3; i++) {
        for (int source = 1; source >= 0; source--) {
            values[i] = number_of(ms_environment(environment, names[i][source]), values[i]);
        }
    }
    out->rank = values[0];
    out->local_rank = values[1];
    out->world_size = values[2];
}

/* Slurm's SLURM_TASKS_PER_NODE is a list such as 4(x2),3: its first number is the largest. */
uint32_t ms_identity_local_ranks(char *const *environment)
{
    char slurm[16] = "";
    const char *tasks = ms_environment(environment, "SLURM_STEP_TASKS_PER_NODE");
    if (tasks != NULL) {
        (void)snprintf(slurm, sizeof(slurm), "%.*s", (int)strspn(tasks, "0123456789"), tasks);
    }
    int32_t ranks = number_of(slurm, 1);
    ranks = number_of(ms_environment(environment, "LOCAL_WORLD_SIZE"), ranks);
    return ranks > 0 ? (uint32_t)ranks : 1;
}

void ms_identity_start_id(int64_t unix_seconds, long pid, char *out, size_t out_bytes)
{
    /* By hand: gmtime would read the time zone's files in every preloaded process. The calendar
     * repeats every 146,097 days; years are counted from March. */
    int64_t days = unix_seconds / 86400, seconds = unix_seconds % 86400;
    int64_t shifted = days + 719468;
    int64_t era = shifted / 146097, day_of_era = shifted % 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * day_of_year + 2) / 153;
    int64_t day = day_of_year - (153 * from_march + 2) / 5 + 1;
    int64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
    (void)snprintf(out, out_bytes, "%04d%02d%02d-%02d%02d%02d-%ld", (int)year, (int)month, (int)day,
                   (int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60), pid);
}

void ms_identity_fallback_dir(char *const *environment, unsigned user, char *out, size_t out_bytes)
{
    const char *tmp = ms_environment(environment, "TMPDIR");
    (void)snprintf(out, out_bytes, "%s/memshim-out-%u", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp",
                   user);
}

/* python, python3, python3.11, pypy3 */
static bool is_python(const char *name)
{
    size_t stem = strncmp(name, "python", 6) == 0 ? 6 : strncmp(name, "pypy", 4) == 0 ? 4 : 0;
    return stem > 0 && strspn(name + stem, "0123456789.t") == strlen(name + stem);
}

/* What a Python command line runs; null for standard input and -c. `at` is behind argv[0]. */
static const char *python_target(const char *at, const char *end)
{
    for (; at < end; at += strlen(at) + 1) {
        if (at[0] != '-' || at[1] == '\0') {
            return at[0] == '-' ? NULL : at;
        }
        if (at[1] == '-') {
            continue;
        }
        for (const char *letter = at + 1; *letter != '\0'; letter++) {
            bool takes_value = strchr("cmWX", *letter) != NULL;
            const char *value = letter + 1;
            if (takes_value && *value == '\0') {
                at += strlen(at) + 1; /* -m NAME rather than -mNAME */
                value = at < end ? at : NULL;
            }
            if (*letter == 'm') {
                return value;
            }
            if (*letter == 'c') {
                return NULL;
            }
            if (takes_value) {
                break;
            }
        }
        if (at >= end) {
            return NULL;
        }
    }
    return NULL;
}

/* What the loader runs whose command line this is (ld-linux-x86-64.so.2 --library-path PATH
 * PROGRAM); the whole where it is another program's. */
static const char *behind_loader(const char *cmdline, const char *end)
{
    static const char alone[] = "--inhibit-cache"; /* the other options have a value */
    const char *at = cmdline;
    if (strncmp(ms_base_name(at), "ld-linux", 8) != 0) {
        return cmdline;
    }
    at += strlen(at) + 1;
    while (at < end && strncmp(at, "--", 2) == 0) {
        const bool has_value = strcmp(at, alone) != 0;
        at += strlen(at) + 1;
        at += has_value && at < end ? strlen(at) + 1 : 0;
    }
    return at < end ? at : cmdline;
}

void ms_identity_program(const char *cmdline, size_t bytes, char *out, size_t out_bytes)
{
    const char *end = cmdline + bytes;
    cmdline = bytes > 0 ? behind_loader(cmdline, end) : cmdline;
    const char *name = bytes > 0 ? ms_base_name(cmdline) : "process";
    size_t length;
    if (bytes > 0 && is_python(name)) {
        const char *target = python_target(cmdline + strlen(cmdline) + 1, end);
        name = target != NULL ? ms_base_name(target) : name;
    }
    length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".py") == 0) {
        length -= 3;
    }
    (void)snprintf(out, out_bytes, "%.*s", (int)length, name);
}
