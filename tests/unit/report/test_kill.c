/* SIGKILL at random moments: every event whose emit had returned is in the trace. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/model.h"
#include "synthetic.h"

enum { KILLS = 200 };

struct shared {
    _Atomic uint64_t told; /* events whose emit has returned */
    _Atomic uint64_t ooms;
    _Atomic uint64_t live_bytes, births;
    char dir[PATH_MAX];
    _Atomic bool ready;
};

/* Runs until it is killed. */
static void writer_process(struct shared *shared, const char *output, uint64_t seed)
{
    struct ms_trace_config config = synthetic_config(output);
    const struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_DRIVER);
    struct synthetic run;

    config.limit_bytes = seed % 3 == 0 ? 1 * MIB : 0; /* some recycle their windows */
    config.process.pid = (int32_t)getpid();

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    if (!trace) {
        _exit(9);
    }
    snprintf(shared->dir, sizeof(shared->dir), "%s", ms_trace_dir(trace));
    atomic_store(&shared->ready, true);
    synthetic_begin(&run, trace, seed);
    atomic_store(&shared->told, run.events);
    for (uint64_t i = 0;; i++) {
        synthetic_churn(&run, 1);
        atomic_store(&shared->told, run.events);
        if (i % 1000 == 999) {
            ms_trace_oom(trace, 0, &state);
            atomic_fetch_add(&shared->ooms, 1);
        }
    }
}

static void check(const struct shared *shared)
{
    char why[512];
    struct ms_model *model = ms_model_new(shared->dir, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert_eq(model->end, MS_PROCESS_KILLED);
    cr_assert(model->sums_exact);

    /* At most one more than was acknowledged: the one under way. */
    const uint64_t kept = model->read_events + model->recycled_events;

    cr_assert_geq(kept, shared->told);
    cr_assert_leq(kept, shared->told + 1);
    cr_assert_geq(ms_model_oom_count(model), shared->ooms);
    cr_assert_leq(ms_model_oom_count(model), shared->ooms + 1);

    const struct ms_aggregate *sums = &model->devices[0].sums;

    if (shared->told > 10) {
        cr_assert_eq(sums->births + sums->deaths + 5, kept, "sums and records agree");
        cr_assert_eq(sums->births - sums->deaths, sums->now.tensors);
    }
    ms_model_delete(model);
}

Test(kill, nothing_that_was_told_is_missing, .timeout = 120)
{
    const char *output = synthetic_folder();
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = 20261121;

    for (int i = 0; i < KILLS; i++) {
        memset(shared, 0, sizeof(*shared));

        const pid_t child = fork();

        if (child == 0) {
            writer_process(shared, output, (uint64_t)i + 1);
        }
        while (!atomic_load(&shared->ready)) {
            usleep(50);
        }
        /* From right after the start to many windows later. */
        usleep((useconds_t)(synthetic_random(&random) % (i % 4 == 0 ? 100 : 20000)));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        check(shared);
    }
}
