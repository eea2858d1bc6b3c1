/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the options for what is put around a command, and makes the arguments for
 * doubles/around.py, which does it. */
#include "shim/cli/dry_run/around.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/dry_run/ground.h"
#include "shim/cli/dry_run/words.h"

bool ms_dry_around_any(const struct ms_dry_around *around)
{
    return around->world > 0 || around->weights || around->data_stub;
}

bool ms_dry_around_check(const struct ms_dry_around *around, char *const *command)
{
    struct ms_buffer words = {0};
    const char *launcher;

    if (around->only != (around->world > 0)) {
        complain("--ranks-of N and --only 0 are given together: one rank of N runs");
        return false;
    }
    ms_dry_words(command, &words);
    launcher = around->only ? ms_dry_words_launcher(&words) : NULL;
    if (launcher) {
        complain("--only runs one rank by itself: leave '%s' out, as in memshim dry-run "
                 "--ranks-of %llu --only 0 -- python train.py",
                 launcher, (unsigned long long)around->world);
    }
    ms_buffer_free(&words);
    return launcher == NULL;
}

static void add_word(struct ms_buffer *words, const char *word)
{
    ms_buffer_append(words, word, strlen(word) + 1);
}

static void add_number(struct ms_buffer *words, uint64_t value)
{
    char number[32];

    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
    add_word(words, number);
}

/* False, after an error message. path: PATH_MAX bytes. */
static bool find(const char *option, const char *given, char *path)
{
    if (realpath(given, path)) {
        return true;
    }
    complain("--%s %s: %s", option, given, strerror(errno));
    return false;
}

static bool add_weights(const struct ms_dry_around *around, char *const *command,
                        struct ms_buffer *words)
{
    char folder[PATH_MAX], made[PATH_MAX];

    if (!find("offline-weights", around->weights, folder) ||
        !ms_dry_ground_weights(command, folder, around->host_bytes, around->processes, made)) {
        return false;
    }
    add_word(words, "--weights");
    add_word(words, folder);
    add_word(words, made);
    return true;
}

static bool add_data(const char *stub, char *const *command, struct ms_buffer *words)
{
    char path[PATH_MAX];

    if (!find("data-stub", stub, path) || !ms_dry_ground_data(command, path)) {
        return false;
    }
    add_word(words, "--data");
    add_word(words, path);
    return true;
}

bool ms_dry_around_words(const struct ms_dry_around *around, uint64_t devices, bool allow_writes,
                         char *const *command, struct ms_buffer *words)
{
    if (allow_writes && (around->weights || around->data_stub)) {
        complain("--offline-weights and --data-stub put files where the command looks for them, "
                 "which only the private layer takes away again: leave --allow-writes out");
        return false;
    }
    if (around->world > 0) {
        add_word(words, "--world");
        add_number(words, around->world);
        add_number(words, devices);
    }
    return (!around->weights || add_weights(around, command, words)) &&
           (!around->data_stub || add_data(around->data_stub, command, words)) && !words->failed;
}
