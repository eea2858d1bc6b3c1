/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a memory snapshot of PyTorch's, by way of the script that makes a CSV of one. */
#include "shim/cli/snapshot.h"

#include <limits.h>
#include <stdio.h>

#include "report/replay/recording.h"
#include "shim/cli/launch/helper.h"
#include "shim/cli/launch/place.h"

#define BUILT         "torch"
#define INSTALLED     "memshim/torch"
#define SCRIPT        "import_torch_snapshot.py"
#define OLDEST_PICKLE 2 /* before it, a pickle has no mark */
#define NEWEST_PICKLE 5

bool ms_cli_is_snapshot(const char *first, size_t bytes)
{
    return bytes >= 2 && (unsigned char)first[0] == 0x80 && first[1] >= OLDEST_PICKLE &&
           first[1] <= NEWEST_PICKLE;
}

struct csv_output {
    struct ms_recording *recording;
    const char *path;
    char *why;
    size_t why_bytes;
    bool read;
};

static void read_csv(void *ctx, int from)
{
    struct csv_output *output = ctx;

    output->read = ms_recording_read_csv_from(output->recording, from, output->path, output->why,
                                              output->why_bytes);
}

static bool read_from(struct ms_recording *recording, char *const *argv, const char *path,
                      char *why, size_t why_bytes)
{
    struct csv_output output = {
        .recording = recording, .path = path, .why = why, .why_bytes = why_bytes};

    if (ms_helper_run(argv, read_csv, &output, NULL) != 0) {
        (void)snprintf(why, why_bytes, "%s was not read (see above)", path);
        return false;
    }
    return output.read;
}

bool ms_cli_read_snapshot(struct ms_recording *recording, const char *path, const char *device,
                          char *why, size_t why_bytes)
{
    char python[PATH_MAX], folder[PATH_MAX], script[PATH_MAX];
    char option[] = "--device", standard_output[] = "-";
    char *argv[] = {python,         script, (char *)path, standard_output, device ? option : NULL,
                    (char *)device, NULL};

    if (!ms_cli_find_folder(folder, BUILT, INSTALLED) ||
        !ms_cli_join_path(script, folder, SCRIPT)) {
        (void)snprintf(why, why_bytes,
                       "%s is a snapshot of PyTorch's: this installation has no " SCRIPT, path);
        return false;
    }
    if (!ms_cli_find_program("python3", python) && !ms_cli_find_program("python", python)) {
        (void)snprintf(why, why_bytes,
                       "%s is a snapshot of PyTorch's: to read it takes a python3 on PATH", path);
        return false;
    }
    return read_from(recording, argv, path, why, why_bytes);
}
