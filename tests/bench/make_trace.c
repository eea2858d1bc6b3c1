/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of a training-like run, as long as it is asked for, told through the real writer.
 * What reports cost is measured on it (reports.py).
 *
 * Usage: make_trace OUTPUT EVENTS [LIMIT_BYTES [NS_AN_EVENT]]. Prints, as one line of JSON, the
 * trace's folder and how long the longest event took to tell. With NS_AN_EVENT the monotonic clock
 * goes on by so much with each event, so that a day is told in minutes, and no event is timed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "shim/tables/report_handover.h"
#include "synthetic.h"

#define EVENTS_A_STEP 1000
#define TOO_MUCH      (30 * GIB)

static struct synthetic run;
static uint64_t ns_an_event, events_told;

/* The linker makes the writer's calls of clock_gettime come here. */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (ns_an_event == 0 || clock != CLOCK_MONOTONIC) {
        return __real_clock_gettime(clock, now);
    }

    const uint64_t ns = events_told * ns_an_event;

    *now = (struct timespec){.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                             .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    return 0;
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The longest of so many events, in CPU time of the thread: others may have the core meanwhile. */
static uint64_t churn_timed(uint64_t events)
{
    uint64_t longest_ns = 0, before_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);

    for (uint64_t i = 0; i < events; i++) {
        synthetic_churn(&run, 1);

        const uint64_t after_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);

        longest_ns = after_ns - before_ns > longest_ns ? after_ns - before_ns : longest_ns;
        before_ns = after_ns;
    }
    return longest_ns;
}

/* The same where time is made: nothing is measured, 0. */
static uint64_t churn_made(uint64_t events)
{
    for (uint64_t i = 0; i < events; i++) {
        events_told++;
        synthetic_churn(&run, 1);
    }
    return 0;
}

static uint64_t train(ms_trace_t *trace, uint64_t events)
{
    uint64_t longest_ns = 0;

    for (uint64_t step = 1; step <= events / EVENTS_A_STEP; step++) {
        const struct ms_event begin = {.kind = MS_EVENT_STEP, .id = step};
        uint64_t took_ns;

        events_told++;
        ms_trace_emit(trace, &begin);
        took_ns = ns_an_event > 0 ? churn_made(EVENTS_A_STEP - 1) : churn_timed(EVENTS_A_STEP - 1);
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    return longest_ns;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        (void)fprintf(stderr, "usage: make_trace OUTPUT EVENTS [LIMIT_BYTES [NS_AN_EVENT]]\n");
        return 2;
    }

    struct ms_trace_config config = synthetic_config(argv[1]);
    const struct ms_oom_state oom = synthetic_oom(TOO_MUCH, MS_OOM_TORCH);
    const char *supervisor = getenv(MS_SUPERVISOR);
    char why[PATH_MAX + 512] = "";

    config.process.supervisor_pid = supervisor != NULL ? (int32_t)strtol(supervisor, NULL, 10) : 0;
    config.limit_bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    ns_an_event = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;

    ms_trace_t *trace = ms_trace_open(&config, why, sizeof(why));

    if (!trace) {
        (void)fprintf(stderr, "make_trace: %s\n", why);
        return 1;
    }
    synthetic_define(trace);
    synthetic_begin(&run, trace, 1);

    const uint64_t longest_ns = train(trace, strtoull(argv[2], NULL, 10));

    ms_trace_oom(trace, 0, &oom);
    ms_trace_close(trace, true, 1);

    (void)printf("{\"folder\": \"%s\", \"longest_event_us\": %" PRIu64 "}\n", ms_trace_dir(trace),
                 longest_ns / 1000);
    return 0;
}
