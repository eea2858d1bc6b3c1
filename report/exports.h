/* Forms that other programs read, of one process each; only the CLI makes them. */
#ifndef MEMSHIM_REPORT_EXPORTS_H
#define MEMSHIM_REPORT_EXPORTS_H

#include <stdbool.h>
#include <stddef.h>

#include "report/buffer.h"
#include "report/model.h"
#include "report/moment.h"

/* The recording that `memshim replay` reads (recording.h), sites by number and line of code.
 * device: an ordinal, or -1: the one with most events. What the records do not tell is counted in
 * *left_out: events that are gone, or that end what began before. False, and a sentence in `why`
 * that names the trace. */
bool ms_csv_export(const struct ms_model *model, int device, struct ms_buffer *out,
                   uint64_t *left_out, char *why, size_t why_bytes);

/* A snapshot of PyTorch's allocator, as torch.cuda.memory._dump_snapshot pickles it and memory_viz
 * opens it: segments with what was live in them at the moment, and the newest events before. False
 * as above. */
bool ms_snapshot_export(const struct ms_model *model, const struct ms_moment_name *moment,
                        struct ms_buffer *out, char *why, size_t why_bytes);

#endif
