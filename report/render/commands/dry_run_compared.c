/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of dry runs with real ones: the part `dry` of scripts/gpu_check.sh, whose results
 * are in tests/gpu/. */
#include <string.h>

#include "report/render/commands/dry_run_parts.h"

#define VERSION "0.1.0" /* of memshim */
#define COMMIT  "800b5ba"
#define CARD    "NVIDIA H200"
#define DRIVER  "580.159.04"
#define PYTORCH "2.11.0"
#define JOBS    10

void ms_dry_compared_text(const char *version, struct ms_buffer *out)
{
    ms_buffer_add(out, "memshim ");
    ms_buffer_add_plain(out, version);
    ms_buffer_format(out,
                     "%s was compared with one card, an H200, on %d jobs (PyTorch " PYTORCH
                     ", commit " COMMIT ").\n",
                     strcmp(version, VERSION) == 0 ? "" : " was not compared with a card: " VERSION,
                     JOBS);
}

void ms_dry_compared_json(struct ms_json *json)
{
    ms_json_open(json, "compared_on_hardware", '{');
    ms_json_text(json, "version", VERSION);
    ms_json_text(json, "commit", COMMIT);
    ms_json_text(json, "card", CARD);
    ms_json_text(json, "driver", DRIVER);
    ms_json_text(json, "pytorch", PYTORCH);
    ms_json_count(json, "jobs", JOBS);
    ms_json_close(json, '}');
}
