/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the environment of a command that runs under memshim. */
#include "shim/cli/launch/preload.h"
#include "allocator/base/nearest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/cli/arguments/complain.h"
#include "shim/cli/launch/place.h"
#include "shim/tables/identity.h"
#include "shim/tables/report_handover.h"

bool ms_preload(const char *command, const char *path)
{
    if (strpbrk(path, " :") != NULL) {
        ms_complain("memshim %s: LD_PRELOAD cannot hold a path with a blank or a colon: %s; "
                    "install memshim elsewhere",
                    command, path);
        return false;
    }
    const char *before = getenv("LD_PRELOAD");
    if (before == NULL || before[0] == '\0') {
        return setenv("LD_PRELOAD", path, 1) == 0;
    }
    size_t bytes = strlen(path) + strlen(before) + 2;
    char *both = malloc(bytes);
    if (both == NULL) {
        return false;
    }
    (void)snprintf(both, bytes, "%s:%s", path, before);
    bool set = setenv("LD_PRELOAD", both, 1) == 0;
    free(both);
    return set;
}

/* The command may change its working folder, and its processes may start in others, so the output
 * folder is made absolute: all must find the same. */
static bool settle_output(const char *command, const char *given, char *output)
{
    char folder[PATH_MAX];
    if (given[0] == '/') {
        return snprintf(output, PATH_MAX, "%s", given) < PATH_MAX &&
               setenv("MEMSHIM_OUTPUT", output, 1) == 0;
    }
    if (getcwd(folder, sizeof folder) == NULL || !ms_cli_join_path(output, folder, given)) {
        ms_complain("memshim %s: the current folder has no usable name: %s", command,
                    strerror(errno));
        return false;
    }
    return setenv("MEMSHIM_OUTPUT", output, 1) == 0;
}

/* All processes of the command belong to one run, even if no launcher names it. */
static bool settle_run_id(time_t start)
{
    char id[64];
    ms_identity_start_id(start, getpid(), id, sizeof id);
    return setenv("MEMSHIM_RUN_ID", id, 0) == 0;
}

/* The processes leave their reports to this one, which completes them when all have ended. */
static bool offer_reports(void)
{
    char self[96], host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(self, sizeof self, "%ld %s", (long)getpid(), host);
    return setenv(MS_SUPERVISOR, self, 1) == 0;
}

bool ms_begin_run(const char *command, const char *output_folder, time_t start, char *output)
{
    char library[PATH_MAX], folder[PATH_MAX];
    if (!ms_cli_find_library(library)) {
        ms_complain("memshim %s: %s is neither beside this executable (%s) nor "
                    "in " MEMSHIM_LIBRARY_FROM_BIN,
                    command, MS_CLI_LIBRARY, ms_cli_own_folder(folder) ? folder : strerror(errno));
        return false;
    }
    return settle_output(command, output_folder, output) && settle_run_id(start) &&
           offer_reports() && ms_preload(command, library);
}

int ms_cannot_run(const char *command, const char *program, int error)
{
    const size_t length = strlen(program);
    const bool script = length > 3 && strcmp(program + length - 3, ".py") == 0;
    const char *before = access(program, F_OK) != 0     ? NULL
                         : script                       ? "python "
                         : strchr(program, '/') == NULL ? "./"
                                                        : NULL;
    char meant[PATH_MAX], question[MS_MEANT_BYTES];
    (void)snprintf(meant, sizeof(meant), "%s%s", before ? before : "", before ? program : "");
    ms_complain("memshim %s: cannot run '%s': %s%s", command, program, strerror(error),
                ms_did_you_mean(meant, question));
    return error == ENOENT ? 127 : 126;
}
