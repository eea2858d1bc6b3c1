/* SPDX-License-Identifier: Apache-2.0 */
/* The output folder, and the latest run in it. */
#include "shim/cli/launch/latest.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/read/traces.h"

const char *ms_cli_output_folder(void)
{
    const char *given = getenv("MEMSHIM_OUTPUT");

    return given && given[0] != '\0' ? given : "memshim-out";
}

/* Into `found`, the folder of the newest dry run; empty: there is none. Their names sort by time.
 */
static void find_dry_run(const char *output, char *found, size_t found_bytes)
{
    char newest[NAME_MAX + 1] = "";
    DIR *folder = opendir(output);

    found[0] = '\0';
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (strncmp(name, "dry-run-", 8) == 0 && isdigit((unsigned char)name[strlen(name) - 1]) &&
            strcmp(name, newest) > 0) {
            (void)snprintf(newest, sizeof(newest), "%s", name);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    if (newest[0] != '\0' && snprintf(found, found_bytes, "%s/%s", output, newest) < 0) {
        found[0] = '\0';
    }
}

bool ms_cli_find_latest(struct ms_buffer *found, const char *or_name, char *why, size_t why_bytes)
{
    const char *output = ms_cli_output_folder();
    char latest[PATH_MAX], dry_run[PATH_MAX], reason[PATH_MAX + 256] = "";

    if (snprintf(latest, sizeof(latest), "%s/latest", output) < (int)sizeof(latest) &&
        ms_traces_find(latest, found, reason, sizeof(reason))) {
        return true;
    }
    find_dry_run(output, dry_run, sizeof(dry_run));
    (void)snprintf(
        why, why_bytes,
        "no run is found in %s (%s)%s%s; name the folder of one%s, or set MEMSHIM_OUTPUT", output,
        reason, dry_run[0] ? ", but a dry run is: " : "", dry_run, or_name);
    return false;
}
