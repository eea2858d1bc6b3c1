/* SPDX-License-Identifier: Apache-2.0 */
/* The output folder, and the latest run in it. */
#include "shim/cli/launch/latest.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/read/traces.h"

const char *ms_cli_output_folder(void)
{
    const char *given = getenv("MEMSHIM_OUTPUT");

    return given && given[0] != '\0' ? given : "memshim-out";
}

bool ms_cli_find_latest(struct ms_buffer *found, const char *or_name, char *why, size_t why_bytes)
{
    const char *output = ms_cli_output_folder();
    char latest[PATH_MAX], reason[PATH_MAX + 256] = "";

    if (snprintf(latest, sizeof(latest), "%s/latest", output) < (int)sizeof(latest) &&
        ms_traces_find(latest, found, reason, sizeof(reason))) {
        return true;
    }
    (void)snprintf(why, why_bytes,
                   "no run is found in %s (%s); name the folder of one%s, or set MEMSHIM_OUTPUT",
                   output, reason, or_name);
    return false;
}
