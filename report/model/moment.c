/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the name of a moment, and finds its time in a run. */
#include "report/model/moment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "allocator/base/units.h"

/* Parses "2.5s", "40m", "1h30m". Each part has its unit. */
static bool parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ms", MS_NS_PER_S / 1000},
                 {"h", 3600 * MS_NS_PER_S},
                 {"m", 60 * MS_NS_PER_S},
                 {"s", MS_NS_PER_S}};

    *ns = 0;
    do {
        char digits[32];
        const size_t length = strspn(text, "0123456789.");
        size_t unit = 0;
        char *end;
        double value;

        if (length == 0 || length >= sizeof(digits)) {
            return false;
        }
        memcpy(digits, text, length);
        digits[length] = '\0';
        value = strtod(digits, &end);
        text += length;
        while (unit < sizeof(units) / sizeof(units[0]) &&
               strncmp(text, units[unit].name, strlen(units[unit].name)) != 0) {
            unit++;
        }
        if (*end != '\0' || unit == sizeof(units) / sizeof(units[0]) || value > 1e9) {
            return false;
        }
        text += strlen(units[unit].name);
        *ns += (uint64_t)(value * (double)units[unit].ns);
    } while (*text);
    return true;
}

bool ms_moment_parse(const char *text, struct ms_moment_name *name)
{
    static const char *const words[] = {
        [MS_AT_PEAK] = "peak", [MS_AT_OOM] = "oom", [MS_AT_END] = "end"};
    char *end;

    for (int i = MS_AT_PEAK; i <= MS_AT_END; i++) {
        if (strcmp(text, words[i]) == 0) {
            *name = (struct ms_moment_name){.word = (enum ms_moment_word)i};
            return true;
        }
    }
    if (strncmp(text, "step:", 5) == 0 && text[5] >= '0' && text[5] <= '9') {
        name->word = MS_AT_STEP;
        name->number = strtoull(text + 5, &end, 10);
        return *end == '\0';
    }
    name->word = MS_AT_TIME;
    return parse_time(text, &name->number);
}

static bool find_oom(const struct ms_model *model, uint64_t *time_ns)
{
    const struct ms_model_oom *oom = ms_model_fatal_oom(model);
    const size_t count = ms_model_oom_count(model);

    if (!oom && count > 0) {
        oom = ms_model_oom_at(model, count - 1);
    }
    *time_ns = oom ? oom->time_ns : 0;
    return oom != NULL;
}

static bool find_told_step(const struct ms_model *model, uint64_t number, uint64_t *time_ns)
{
    const struct ms_model_step *steps = (const struct ms_model_step *)model->steps.times.at;
    const size_t count = model->steps.times.bytes / sizeof(*steps);

    for (size_t i = 0; i < count; i++) {
        if (steps[i].number == number) {
            *time_ns = steps[i].time_ns;
            return true;
        }
    }
    return false;
}

/* If the program reported no steps: those that were found, counted from 1. */
static bool find_step(const struct ms_model *model, uint64_t number, uint64_t *time_ns)
{
    const struct ms_recurrence *found = &model->recurrence;
    const uint64_t *begins = (const uint64_t *)found->begins.at;
    const size_t count = found->begins.bytes / sizeof(*begins);

    if (model->steps.count > 0 || !found->known) {
        return find_told_step(model, number, time_ns);
    }
    if (number == 0 || (number - 1) % found->every != 0 || (number - 1) / found->every >= count) {
        return false;
    }
    *time_ns = begins[(number - 1) / found->every];
    return true;
}

static void say_no_step(const struct ms_model *model, uint64_t number, char *why, size_t why_bytes)
{
    const struct ms_recurrence *found = &model->recurrence;

    if (model->steps.count == 0 && found->known && number > found->count) {
        (void)snprintf(why, why_bytes, "%s: there is no step %" PRIu64 ", it made %" PRIu64,
                       model->path, number, found->count);
    } else if (model->steps.count == 0 && found->known) {
        (void)snprintf(why, why_bytes,
                       "%s: when step %" PRIu64 " began is not kept: one in %" PRIu64
                       " is, from step 1 on",
                       model->path, number, found->every);
    } else {
        (void)snprintf(why, why_bytes,
                       "%s: it did not tell when step %" PRIu64 " began (memshim_step, NVTX)",
                       model->path, number);
    }
}

bool ms_moment_find(const struct ms_model *model, const struct ms_moment_name *name, int device,
                    uint64_t *time_ns, char *why, size_t why_bytes)
{
    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[device].sums);
    char text[MS_UNIT_TEXT_BYTES];

    switch (name->word) {
    case MS_AT_PEAK:
        *time_ns = peak.time_ns;
        return true;
    case MS_AT_END:
        *time_ns = model->duration_ns;
        return true;
    case MS_AT_TIME:
        *time_ns = name->number;
        if (name->number > model->duration_ns) {
            (void)snprintf(why, why_bytes, "%s: it ran only %s", model->path,
                           ms_duration_text(model->duration_ns, text, sizeof(text)));
        }
        return name->number <= model->duration_ns;
    case MS_AT_OOM:
        if (!find_oom(model, time_ns)) {
            (void)snprintf(why, why_bytes, "%s: it had no out-of-memory", model->path);
            return false;
        }
        return true;
    default:
        if (!find_step(model, name->number, time_ns)) {
            say_no_step(model, name->number, why, why_bytes);
            return false;
        }
        return true;
    }
}

char *ms_moment_text(const struct ms_moment_name *name, uint64_t time_ns, char *text,
                     size_t text_bytes)
{
    static const char *const words[] = {[MS_AT_PEAK] = "at its peak, ",
                                        [MS_AT_OOM] = "out of memory, ",
                                        [MS_AT_END] = "at its end, ",
                                        [MS_AT_TIME] = "at ",
                                        [MS_AT_STEP] = ""};
    char time[MS_UNIT_TEXT_BYTES];

    ms_duration_text(time_ns, time, sizeof(time));
    if (name->word == MS_AT_STEP) {
        (void)snprintf(text, text_bytes, "as step %" PRIu64 " began, %s", name->number, time);
    } else {
        (void)snprintf(text, text_bytes, "%s%s", words[name->word], time);
    }
    return text;
}
