/* SPDX-License-Identifier: Apache-2.0 */
/* Every event of a trace for the programs that print them, by the reader's own walk. */
#include "trace_events.h"

#include <stdio.h>

#include "report/read/events.h"

struct saying {
    const struct ms_model *model;
    void (*say)(const struct ms_model *model, const struct ms_event *event);
};

static void take_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    const struct saying *saying = ctx;

    (void)time_ns;
    saying->say(saying->model, event);
}

bool trace_events(const struct ms_model *model, const char *path,
                  void (*say)(const struct ms_model *model, const struct ms_event *event))
{
    static struct ms_reader reader;
    struct saying saying = {model, say};
    const struct ms_events_visitor visitor = {.ctx = &saying, .event = take_event};
    char why[256] = "a window is damaged";
    uint64_t damaged_windows = 1;
    bool good = ms_reader_open(&reader, path, why, sizeof(why));

    if (good) {
        good = ms_events_walk(&reader, &visitor, &damaged_windows) && damaged_windows == 0;
        ms_reader_close(&reader);
    }
    if (!good) {
        (void)fprintf(stderr, "%s\n", why);
    }
    return good;
}
