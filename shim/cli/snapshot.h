/* SPDX-License-Identifier: Apache-2.0 */
/* Memory snapshots of PyTorch's, as torch.cuda.memory._dump_snapshot writes them. */
#ifndef MEMSHIM_SHIM_CLI_SNAPSHOT_H
#define MEMSHIM_SHIM_CLI_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>

struct ms_recording;

/* Whether a file begins with these bytes as a pickle of protocol 2 or newer. A snapshot is one. */
bool ms_cli_is_snapshot(const char *first, size_t bytes);

/* Has a Python on PATH make a CSV of the snapshot (import_torch_snapshot.py), and reads that.
 * device: of the snapshot's; null: the one with most events. False, with a sentence in `why`; what
 * is wrong in the snapshot, Python's half has said on stderr by then. */
bool ms_cli_read_snapshot(struct ms_recording *recording, const char *path, const char *device,
                          char *why, size_t why_bytes);

#endif
