/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the work spaces of convolutions by the native frames of their call sites. */
#include "shim/cli/dry_run/workspaces.h"

#include <stdlib.h>

#include "report/model/kinds.h"

bool ms_dry_workspaces_mark(const struct ms_model *model, struct ms_recording *recording)
{
    const uint32_t last = ms_recording_last_site(recording);
    bool *sites = calloc((size_t)last + 1, sizeof(*sites));

    if (!sites) {
        return false;
    }
    for (uint32_t site = 1; site <= last; site++) {
        sites[site] = ms_kinds_is_convolutions(model->stacks, site);
    }
    ms_recording_set_optional(recording, sites);
    free(sites);
    return true;
}
