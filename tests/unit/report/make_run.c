/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a run of several processes for the schema's test: well, out of memory, killed, hostile
 * names; and completes its reports. Prints the run's folder. Or prints a trace's collapsed stacks.
 * Usage: make_run OUTPUT, make_run --folded TRACE */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/trace/definitions.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/launch/report_files.h"
#include "synthetic.h"

/* Of the arena: slots, of which synthetic_churn fills no more than so much. */
#define ARENA       0x7f0000000000
#define SLOT        (8 * MIB)
#define CHURN_BYTES (UINT64_C(512) * 16000)
#define MOVED_SLOT  (ARENA + 3 * SLOT)

#define STEPS         12
#define HOSTILE_SITE  7 /* of synthetic_define */
#define GROWING_SITE  100
#define GROWING_BYTES (UINT64_C(128) << 10)
#define WAITING_BYTES (300 * MIB)
#define DEVICE_CHUNK  7 /* of synthetic_begin */
#define HOST_CHUNK    900

/* What grows: a tensor a step that is never freed, behind those that come and go. */
static void grow(struct synthetic *run, uint64_t step)
{
    const struct ms_event tensor = {
        .kind = MS_EVENT_TENSOR_ALLOC,
        .id = ++run->next_id,
        .addr = ARENA + step * SLOT + CHURN_BYTES,
        .bytes = GROWING_BYTES,
        .site = GROWING_SITE,
        .aux = run->arena_id,
    };

    ms_trace_emit(run->trace, &tensor);
}

static void define_growing(ms_trace_t *trace)
{
    const struct ms_site_definition site = {
        .id = GROWING_SITE, .native = 1, .python = 90, .tag = 1, .thread = MS_THREAD_PYTHON};

    (void)ms_trace_define(trace, MS_DEFINE_SITE, &site, sizeof(site));
}

static void tell_range(ms_trace_t *trace, uint8_t kind, uint64_t chunk, uint64_t addr,
                       uint64_t bytes)
{
    const struct ms_event event = {.kind = kind, .id = chunk, .addr = addr, .bytes = bytes};

    ms_trace_emit(trace, &event);
}

/* A slot of the arena, in which something has grown, moves to host memory, or back. */
static void move_slot(ms_trace_t *trace, bool down)
{
    const struct ms_event chunk = {
        .kind = down ? MS_EVENT_CHUNK_CREATE : MS_EVENT_CHUNK_RELEASE,
        .id = HOST_CHUNK,
        .bytes = SLOT,
        .aux = MS_LOCATION_HOST,
    };
    const struct ms_event move = {
        .kind = down ? MS_EVENT_SPILL : MS_EVENT_PROMOTE,
        .addr = MOVED_SLOT,
        .bytes = SLOT,
        .aux = 1500000,
    };

    if (down) {
        ms_trace_emit(trace, &chunk);
    }
    tell_range(trace, MS_EVENT_UNMAP, down ? DEVICE_CHUNK : HOST_CHUNK, MOVED_SLOT, SLOT);
    tell_range(trace, MS_EVENT_MAP, down ? HOST_CHUNK : DEVICE_CHUNK, MOVED_SLOT, SLOT);
    ms_trace_emit(trace, &move);
    if (!down) {
        ms_trace_emit(trace, &chunk);
    }
}

static ms_trace_t *begin(const char *output, int rank, struct synthetic *run)
{
    struct ms_trace_config config = synthetic_config(output);

    config.process.rank = rank;
    config.process.pid = 1000 + rank;
    if (rank == 1) {
        config.process.command = "python \"x\" <script>\n\x1b[2J\xff";
        config.process.program = "<b>\n\xff";
        config.process.rank = -1;
        config.process.world_size = 0;
        config.process.options = "MEMSHIM_OUTPUT=a\"b\n";
    }

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    synthetic_begin(run, trace, (uint64_t)rank + 1);
    synthetic_define(trace);
    define_growing(trace);
    tell_range(trace, MS_EVENT_RANGE_RESERVE, 0, ARENA, 4 * GIB);
    tell_range(trace, MS_EVENT_MAP, DEVICE_CHUNK, ARENA, 4 * GIB);
    for (uint64_t step = 1; step <= STEPS; step++) {
        const struct ms_event begins = {.kind = MS_EVENT_STEP, .id = step};
        struct ms_event tag = {.kind = MS_EVENT_TAG_BEGIN, .id = 77, .aux = 1 + step % 2};

        ms_trace_emit(trace, &begins);
        ms_trace_emit(trace, &tag);
        grow(run, step);
        synthetic_churn(run, 2000);
        if (step == STEPS / 2 || step == STEPS - 2) {
            const struct ms_event waits = {.kind = MS_EVENT_WAITS,
                                           .bytes = step == STEPS / 2 ? WAITING_BYTES : 0};

            move_slot(trace, step == STEPS / 2);
            ms_trace_emit(trace, &waits);
        }
        tag.kind = MS_EVENT_TAG_END;
        ms_trace_emit(trace, &tag);
    }
    return trace;
}

int main(int argc, char **argv)
{
    struct synthetic run;
    char dir[PATH_MAX];

    if (argc == 3) {
        return ms_cli_report(
            5, (char *[]){"report", argv[2], "--format", "folded", "--modules=/", NULL});
    }
    if (argc != 2) {
        return 2;
    }

    ms_trace_t *well = begin(argv[1], 0, &run);
    const struct ms_event crossing = {.kind = MS_EVENT_THRESHOLD, .bytes = 22 * GIB, .aux = 1};

    ms_trace_emit(well, &crossing);
    ms_trace_note(well, "a \"note\"");
    ms_trace_close(well, true, 0);

    ms_trace_t *died = begin(argv[1], 1, &run);
    struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);

    for (int source = 0; source < 2; source++) {
        state.source = (uint8_t)source;
        state.site = HOSTILE_SITE;
        ms_trace_oom(died, 0, &state);
    }
    ms_trace_close(died, true, 1);

    const pid_t child = fork();

    if (child == 0) {
        (void)begin(argv[1], 2, &run);
        (void)raise(SIGKILL);
    }
    (void)waitpid(child, NULL, 0);
    snprintf(dir, sizeof(dir), "%s", ms_trace_dir(well));
    *strrchr(dir, '/') = '\0';
    (void)puts(dir);
    return ms_report_complete(dir) == 0 ? 0 : 1;
}
