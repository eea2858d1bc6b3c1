/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's plug-in: srun, salloc and sbatch learn --memshim[=FRACTION] and --memshim-output=DIR, and
 * the tasks of such a step start under memshim.
 *
 * Its line in plugstack.conf:
 *
 *     optional /usr/lib/slurm/memshim_spank.so library=/opt/libmemshim.so output=/scratch/%u
 *
 *   library=PATH   what is preloaded, as the nodes see it (default: libmemshim.so, found by ld.so)
 *   output=DIR     where runs go unless the user says; %u is the user's name
 *
 * Slurm takes no plug-in that was compiled for another major version: it is built on the cluster,
 * by cc -shared -fPIC -o memshim_spank.so memshim_spank.c. See slurm/spank.h for what Slurm calls
 * when. */
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(memshim, 1)

static struct {
    const char *library;
    const char *output; /* of plugstack.conf */
    bool wanted;
    const char *fraction; /* of the user, or null */
    char asked_output[PATH_MAX];
} settings = {.library = "libmemshim.so"};

static int take_fraction(int value, const char *text, int remote)
{
    (void)value;
    (void)remote;
    settings.wanted = true;
    if (text == NULL || *text == '\0' || strcmp(text, "(null)") == 0) { /* Slurm's for "without" */
        return 0;
    }
    char *end = NULL;
    double fraction = strtod(text, &end);
    if (end == text || *end != '\0' || !(fraction > 0.0 && fraction <= 1.0)) {
        slurm_error(
            "memshim: --memshim=%s: not a fraction of the device's memory; it is above 0 and "
            "at most 1, such as --memshim=0.95",
            text);
        return -1;
    }
    settings.fraction = strdup(text);
    return settings.fraction != NULL ? 0 : -1;
}

static int take_output(int value, const char *text, int remote)
{
    (void)value;
    (void)remote;
    settings.wanted = true;
    if (text == NULL || text[0] != '/' || strlen(text) >= sizeof settings.asked_output) {
        slurm_error("memshim: --memshim-output=%s: not an absolute path of a folder",
                    text != NULL ? text : "");
        return -1;
    }
    (void)snprintf(settings.asked_output, sizeof settings.asked_output, "%s", text);
    return 0;
}

static struct spank_option fraction_option = {
    .name = "memshim",
    .arginfo = "FRACTION",
    .usage = "run the tasks under memshim, with at most this part of each device's memory",
    .has_arg = 2,
    .cb = take_fraction,
};

static struct spank_option output_option = {
    .name = "memshim-output",
    .arginfo = "DIR",
    .usage = "run the tasks under memshim, whose traces and reports go below this folder",
    .has_arg = 1,
    .cb = take_output,
};

static void read_arguments(int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "library=", 8) == 0) {
            settings.library = arguments[i] + 8;
        } else if (strncmp(arguments[i], "output=", 7) == 0) {
            settings.output = arguments[i] + 7;
        } else {
            slurm_error(
                "memshim: plugstack.conf: unknown argument '%s'; there are library=PATH and "
                "output=DIR",
                arguments[i]);
        }
    }
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    read_arguments(count, arguments);
    if (spank_context() == S_CTX_SLURMD || spank_context() == S_CTX_JOB_SCRIPT) {
        return 0;
    }
    bool registered = spank_option_register(spank, &fraction_option) == ESPANK_SUCCESS &&
                      spank_option_register(spank, &output_option) == ESPANK_SUCCESS;
    return registered ? 0 : -1;
}

/* Of the user, else of plugstack.conf. False: memshim's own choice. */
static bool output_folder(uid_t user, char *out, size_t bytes)
{
    const char *from = settings.asked_output[0] != '\0' ? settings.asked_output : settings.output;
    if (from == NULL) {
        return false;
    }
    const char *name = strstr(from, "%u");
    const struct passwd *entry = name != NULL ? getpwuid(user) : NULL;
    if (entry == NULL) {
        return snprintf(out, bytes, "%s", from) < (int)bytes;
    }
    return snprintf(out, bytes, "%.*s%s%s", (int)(name - from), from, entry->pw_name, name + 2) <
           (int)bytes;
}

/* The epilog finds it as SPANK_MEMSHIM_OUTPUT. Only what makes the allocation can leave it there.
 */
int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    (void)count;
    (void)arguments;
    char output[PATH_MAX];
    if (settings.wanted && spank_context() != S_CTX_REMOTE &&
        output_folder(getuid(), output, sizeof output)) {
        (void)spank_job_control_setenv(spank, "MEMSHIM_OUTPUT", output, 1);
    }
    return 0;
}

/* Whether one of the words of LD_PRELOAD, apart by colons or blanks, is the library. */
static bool preloads(const char *list)
{
    size_t length = strlen(settings.library);
    while (*list != '\0') {
        size_t word = strcspn(list, ": ");
        if (word == length && strncmp(list, settings.library, length) == 0) {
            return true;
        }
        list += word;
        list += strspn(list, ": ");
    }
    return false;
}

static bool preload(spank_t spank)
{
    size_t room = strlen(settings.library) + 1;
    char before[4096] = "";
    spank_err_t found = spank_getenv(spank, "LD_PRELOAD", before, sizeof before);
    if (found == ESPANK_NOSPACE) {
        return false;
    }
    if (preloads(before)) {
        return true;
    }
    char list[sizeof before + PATH_MAX];
    if (room > PATH_MAX) {
        return false;
    }
    (void)snprintf(list, sizeof list, "%s%s%s", settings.library, before[0] != '\0' ? ":" : "",
                   before);
    return spank_setenv(spank, "LD_PRELOAD", list, 1) == ESPANK_SUCCESS;
}

/* In the step's own process, as the user, before its tasks. */
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
    (void)count;
    (void)arguments;
    if (!settings.wanted) {
        return 0;
    }
    if (strchr(settings.library, '/') != NULL && access(settings.library, R_OK) != 0) {
        slurm_spank_log("memshim: %s cannot be read on this node: the tasks run without memshim; "
                        "library= in plugstack.conf names it",
                        settings.library);
        return 0;
    }
    if (!preload(spank)) {
        slurm_spank_log("memshim: LD_PRELOAD could not be set (it is longer than 4095 bytes, or "
                        "there is no memory): the tasks run without memshim");
        return 0;
    }
    char output[PATH_MAX];
    if (output_folder(getuid(), output, sizeof output)) {
        /* What the user's environment says comes before plugstack.conf. */
        (void)spank_setenv(spank, "MEMSHIM_OUTPUT", output, settings.asked_output[0] != '\0');
    }
    if (settings.fraction != NULL) {
        (void)spank_setenv(spank, "MEMSHIM_FRACTION", settings.fraction, 1);
    }
    return 0;
}
