/* SPDX-License-Identifier: Apache-2.0 */
/* Traces made up for tests: a training-like run, told through the real writer, beside a ledger of
 * its own that is kept without any code of report/. */
#ifndef MEMSHIM_TESTS_UNIT_REPORT_SYNTHETIC_H
#define MEMSHIM_TESTS_UNIT_REPORT_SYNTHETIC_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "report/write/writer.h"

#define SYNTHETIC_SLOTS 512
#define GIB             (UINT64_C(1) << 30)
#define KIB             (UINT64_C(1) << 10)
#define MIB             (UINT64_C(1) << 20)

struct synthetic {
    ms_trace_t *trace;
    uint8_t device;
    uint64_t random;
    uint64_t next_id, arena_id;
    struct ms_event live[SYNTHETIC_SLOTS]; /* tensors; id 0: none */
    /* What a report has to say. */
    uint64_t events;
    uint64_t live_bytes, peak_live_bytes;
    uint64_t allocations, deaths;
};

/* A new folder under /tmp for the traces of one test; removed at the end of the process. */
const char *synthetic_folder(void);

/* Mounts a small file system on synthetic_folder() ("size=3m"), for this process alone: no other
 * test sees it, and it goes with the process. False where that needs root. */
bool synthetic_mount(const char *size);

/* A configuration that writes to `output`: program train.py, host node-a, pid 4711, run r1. */
struct ms_trace_config synthetic_config(const char *output);

/* Opens a trace in `output`, or fails the test's process. */
ms_trace_t *synthetic_open(const char *output);

/* Device 0 of 24 GiB with a cap of 23 GiB, 400 MiB of context, and one arena of 4 GiB. */
void synthetic_begin(struct synthetic *run, ms_trace_t *trace, uint64_t seed);

/* So many allocations and frees of tensors, in random order. */
void synthetic_churn(struct synthetic *run, uint64_t events);

/* Names whose every character is a trap for some form. */
#define SYNTHETIC_HOSTILE "a\"b;c\n<script>\x1b[2J\xff d\xe2\x80\xae\\"

/* Defines the sites that synthetic_churn names (1 to 99), each a stack of two Python frames: the
 * function "step" at its own line of train.py in "main" of the same file, which came from a native
 * one. Site 7 has a function, a file and a tag of hostile names; sites 90 to 99 are autograd's. */
void synthetic_define(ms_trace_t *trace);

/* The line of site 1 in its file, which its code object's table says. */
#define SYNTHETIC_LINE(site) (200 + (site))

/* The state of an out-of-memory: so many bytes asked for. */
struct ms_oom_state synthetic_oom(uint64_t requested_bytes, enum ms_oom_source source);

uint64_t synthetic_random(uint64_t *state);

/* The whole file, malloc'ed; its length in *bytes. */
char *synthetic_read(const char *path, size_t *bytes);

#endif
