/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the value of each option. */
#include "shim/tables/option_parsers.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"

#define KIB UINT64_C(0x400)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)
#define TIB (GIB * KIB)
#define KB  UINT64_C(1000)
#define MB  (KB * KB)
#define GB  (MB * KB)
#define TB  (GB * KB)

#define SMALLEST_SIZE MIB

/* --- Numbers ---------------------------------------------------------------------------------- */

struct number {
    uint64_t whole; /* UINT64_MAX: that or more */
    uint64_t ppb;   /* behind the point; digits after the ninth do not count */
};

static void add_digit(struct number *number, unsigned digit, uint64_t *place)
{
    if (place != NULL) {
        *place /= 10;
        number->ppb += digit * *place;
    } else {
        number->whole = number->whole < UINT64_MAX / 10 ? number->whole * 10 + digit : UINT64_MAX;
    }
}

/* Not strtod: the application's locale may use another decimal point, and see arithmetic.h. Returns
 * where the number ends; null if there is none. */
static const char *scan_number(const char *text, struct number *number)
{
    uint64_t place = MS_PPB;
    bool any = false, behind_point = false;
    *number = (struct number){0};
    for (;; text++) {
        if (*text == '.' && !behind_point) {
            behind_point = true;
        } else if (*text >= '0' && *text <= '9') {
            any = true;
            add_digit(number, (unsigned)(*text - '0'), behind_point ? &place : NULL);
        } else {
            break;
        }
    }
    return any ? text : NULL;
}

static bool is_whole(const struct number *number)
{
    return number->ppb == 0;
}

static bool is_zero(const struct number *number)
{
    return number->whole == 0 && number->ppb == 0;
}

static bool is_at_most(const struct number *number, uint64_t most)
{
    return number->whole < most || (number->whole == most && number->ppb == 0);
}

/* number * factor, rounded down. It must be less than 2^63. */
static uint64_t times(const struct number *number, uint64_t factor)
{
    return number->whole * factor + ms_of_ppb(factor, number->ppb);
}

bool ms_parse_fraction(const char *text, uint64_t *ppb)
{
    struct number number;
    const char *end = scan_number(text, &number);
    if (end == NULL || *end != '\0' || is_zero(&number) || !is_at_most(&number, 1)) {
        return false;
    }
    *ppb = times(&number, MS_PPB);
    return true;
}

bool ms_parse_bytes(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1},    {"B", 1},     {"K", KIB},   {"KiB", KIB}, {"KB", KB},
                 {"M", MIB}, {"MiB", MIB}, {"MB", MB},   {"G", GIB},   {"GiB", GIB},
                 {"GB", GB}, {"T", TIB},   {"TiB", TIB}, {"TB", TB}};
    struct number number;
    const char *unit = scan_number(text, &number);
    if (unit == NULL) {
        return false;
    }
    unit += *unit == ' ' ? 1 : 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const uint64_t factor = units[i].factor;
        if (strcasecmp(unit, units[i].name) == 0 && number.whole < INT64_MAX / factor) {
            *bytes = times(&number, factor);
            return true;
        }
    }
    return false;
}

bool ms_parse_size(const char *text, uint64_t *bytes)
{
    uint64_t parsed = 0;
    if (!ms_parse_bytes(text, &parsed) || parsed < SMALLEST_SIZE) {
        return false;
    }
    *bytes = parsed;
    return true;
}

/* --- One parser for each option ----------------------------------------------------------------
 */

/* One item of a cap: [device:]value. Without a device it holds for all devices. The value must be
 * of the option's own kind. */
static bool parse_cap_item(const char *item, bool fractions, struct ms_options *out)
{
    struct ms_cap_rule *rule = &out->cap_all;
    const char *colon = strchr(item, ':');
    const char *value = item;
    struct number device;
    uint64_t bytes = 0;
    if (colon != NULL) {
        if (scan_number(item, &device) != colon || !is_whole(&device) ||
            device.whole >= MS_DEVICES_MAX) {
            return false;
        }
        rule = &out->cap[device.whole];
        value = colon + 1;
    }
    if ((fractions || colon != NULL) && ms_parse_fraction(value, &rule->fraction_ppb)) {
        return true;
    }
    if ((!fractions || colon != NULL) && ms_parse_size(value, &bytes)) {
        rule->limit_bytes = bytes;
        return true;
    }
    return false;
}

/* Passes comma-separated items to item_is_good, without the blanks around them. False at the first
 * that is too long, empty, or refused. */
static bool each_item(const char *text, bool (*item_is_good)(void *ctx, const char *item),
                      void *ctx)
{
    for (;;) {
        char item[MS_OPTION_VALUE_CHARACTERS];
        while (*text == ' ') {
            text++;
        }
        size_t length = strcspn(text, ",");
        const char *next = text + length;
        while (length > 0 && text[length - 1] == ' ') {
            length--;
        }
        if (length == 0 || length >= sizeof(item)) {
            return false;
        }
        memcpy(item, text, length);
        item[length] = '\0';
        if (!item_is_good(ctx, item)) {
            return false;
        }
        if (*next == '\0') {
            return true;
        }
        text = next + 1;
    }
}

struct cap_parse {
    struct ms_options *out;
    bool fractions;
};

static bool cap_item(void *ctx, const char *item)
{
    const struct cap_parse *parse = ctx;
    return parse_cap_item(item, parse->fractions, parse->out);
}

static bool parse_cap(const char *text, bool fractions, struct ms_options *out)
{
    struct ms_options changed = *out;
    struct cap_parse parse = {&changed, fractions};
    if (!each_item(text, cap_item, &parse)) {
        return false;
    }
    *out = changed;
    return true;
}

bool ms_option_fraction_cap(const char *text, struct ms_options *out)
{
    return parse_cap(text, true, out);
}

bool ms_option_limit_cap(const char *text, struct ms_options *out)
{
    return parse_cap(text, false, out);
}

static bool parse_switch(const char *text, bool *out)
{
    bool on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0) {
        return false;
    }
    *out = on;
    return true;
}

bool ms_option_pool(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->pool);
}

static bool parse_age(const char *text, uint64_t *ns)
{
    const uint64_t most_days = 36500;
    struct number days;
    const char *end = scan_number(text, &days);
    if (end == NULL || strcmp(end, "d") != 0 || is_zero(&days) || !is_at_most(&days, most_days)) {
        return false;
    }
    *ns = times(&days, 86400 * MS_NS_PER_S);
    return true;
}

bool ms_parse_keep(const char *text, struct ms_keep *keep)
{
    struct ms_keep parsed = {0};
    char part[MS_OPTION_VALUE_CHARACTERS];
    for (const char *at = text; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (length >= sizeof part) {
            return false;
        }
        (void)snprintf(part, sizeof part, "%.*s", (int)length, at);
        bool size = parsed.bytes == 0 && ms_parse_size(part, &parsed.bytes);
        if (!size && (parsed.age_ns != 0 || !parse_age(part, &parsed.age_ns))) {
            return false;
        }
    }
    *keep = parsed;
    return true;
}

bool ms_option_keep(const char *text, struct ms_options *out)
{
    out->keep = (struct ms_keep){0};
    return text[0] == '\0' || ms_parse_keep(text, &out->keep);
}

/* In the form that the report reads (report/render/source.c). */
bool ms_option_source(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->source);
}

bool ms_option_trace(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->trace);
}

const char *ms_torch_mode_name(enum ms_torch_mode mode)
{
    static const char *const names[] = {"native", "tensor", "off"};
    return names[mode];
}

bool ms_option_torch(const char *text, struct ms_options *out)
{
    for (int mode = MS_TORCH_NATIVE; mode <= MS_TORCH_OFF; mode++) {
        if (strcmp(text, ms_torch_mode_name((enum ms_torch_mode)mode)) == 0) {
            out->torch = (enum ms_torch_mode)mode;
            return true;
        }
    }
    return false;
}

static const char *const framework_names[] = {
#define MS_FRAMEWORK(id, name, what) name,
#include "shim/tables/frameworks.def"
};

static bool framework_item(void *ctx, const char *item)
{
    uint32_t *frameworks = ctx;
    for (unsigned i = 0; i < MS_FRAMEWORKS; i++) {
        if (strcmp(item, framework_names[i]) == 0) {
            *frameworks |= 1u << i;
            return true;
        }
    }
    return false;
}

bool ms_option_frameworks(const char *text, struct ms_options *out)
{
    uint32_t found = strcmp(text, "auto") == 0 ? (1u << MS_FRAMEWORKS) - 1 : 0;
    if (found == 0 && strcmp(text, "off") != 0 && !each_item(text, framework_item, &found)) {
        return false;
    }
    out->frameworks = found;
    return true;
}

bool ms_option_stacks(const char *text, struct ms_options *out)
{
    static const char *const names[] = {"off", "native", "python", "full"};
    for (int mode = MS_STACKS_OFF; mode <= MS_STACKS_FULL; mode++) {
        if (strcmp(text, names[mode]) == 0) {
            out->stacks = (enum ms_stacks_mode)mode;
            return true;
        }
    }
    return false;
}

bool ms_option_stack_depth(const char *text, struct ms_options *out)
{
    struct number depth;
    const char *end = scan_number(text, &depth);
    if (end == NULL || *end != '\0' || !is_whole(&depth) || depth.whole < 1 ||
        depth.whole > MS_STACK_DEPTH_MAX) {
        return false;
    }
    out->stack_depth = (uint32_t)depth.whole;
    return true;
}

bool ms_option_sample_bytes(const char *text, struct ms_options *out)
{
    return ms_parse_bytes(text, &out->sample_bytes);
}

bool ms_option_views(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->views);
}

bool ms_option_spill(const char *text, struct ms_options *out)
{
    bool on = strcmp(text, "auto") == 0;
    if (!on && strcmp(text, "off") != 0) {
        return false;
    }
    out->spill = on;
    return true;
}

bool ms_option_spill_limit(const char *text, struct ms_options *out)
{
    uint64_t bytes = 0;
    if (text[0] != '\0' && !ms_parse_size(text, &bytes)) {
        return false;
    }
    out->spill_limit_bytes = bytes;
    return true;
}

/* In the form that the report reads (report/read/batch.c). */
bool ms_option_batch(const char *text, struct ms_options *out)
{
    struct number samples;
    if (text[strspn(text, "0123456789")] != '\0' || scan_number(text, &samples) == NULL ||
        samples.whole < 1 || samples.whole > UINT32_MAX) {
        return false;
    }
    out->batch = (uint32_t)samples.whole;
    return true;
}

bool ms_option_status_every(const char *text, struct ms_options *out)
{
    const uint64_t longest = 1000000; /* seconds: 11 days */
    struct number number = {0};
    const char *unit = text[0] != '\0' ? scan_number(text, &number) : text;
    const bool seconds = unit != NULL && strcmp(unit, "s") == 0;
    if (unit == NULL || (unit[0] != '\0' && !seconds) || !is_at_most(&number, longest)) {
        return false;
    }
    const uint64_t ns = times(&number, MS_NS_PER_S);
    if (text[0] != '\0' &&
        (seconds ? ns < MS_NS_PER_S / 1000 : number.whole < 1 || !is_whole(&number))) {
        return false;
    }
    out->status_steps = seconds ? 0 : number.whole;
    out->status_ns = seconds ? ns : 0;
    return true;
}

bool ms_option_wait(const char *text, struct ms_options *out)
{
    const uint64_t longest = 600000;
    struct number milliseconds;
    const char *end = scan_number(text, &milliseconds);
    if (end == NULL || *end != '\0' || !is_at_most(&milliseconds, longest)) {
        return false;
    }
    out->wait_ns = times(&milliseconds, MS_NS_PER_S / 1000);
    return true;
}

bool ms_option_report_wait(const char *text, struct ms_options *out)
{
    const uint64_t longest = 3600;
    struct number seconds;
    const char *end = scan_number(text, &seconds);
    if (end == NULL || *end != '\0' || !is_at_most(&seconds, longest)) {
        return false;
    }
    out->report_wait_ns = times(&seconds, MS_NS_PER_S);
    return true;
}

struct threshold_parse {
    uint64_t levels_ppb[3];
    int count;
};

static bool threshold_item(void *ctx, const char *item)
{
    struct threshold_parse *parse = ctx;
    uint64_t ppb;
    if (parse->count == 3 || !ms_parse_fraction(item, &ppb) ||
        (parse->count > 0 && ppb <= parse->levels_ppb[parse->count - 1])) {
        return false;
    }
    parse->levels_ppb[parse->count++] = ppb;
    return true;
}

bool ms_option_thresholds(const char *text, struct ms_options *out)
{
    struct threshold_parse parse = {.count = 0};
    if (!each_item(text, threshold_item, &parse) || parse.count != 3) {
        return false;
    }
    memcpy(out->thresholds_ppb, parse.levels_ppb, sizeof(out->thresholds_ppb));
    return true;
}

bool ms_option_trace_limit(const char *text, struct ms_options *out)
{
    uint64_t bytes;
    if (!ms_parse_size(text, &bytes)) {
        return false;
    }
    out->trace_limit_bytes = bytes;
    return true;
}

bool ms_option_output(const char *text, struct ms_options *out)
{
    out->output_dir = text;
    return strlen(text) < PATH_MAX;
}

bool ms_option_forward(const char *text, struct ms_options *out)
{
    for (const char *at = text; *at != '\0'; at++) {
        const bool number = *at == ':' && isdigit((unsigned char)at[1]);
        if (isspace((unsigned char)*at) || (*at == ':' && !number) ||
            (*at == ',' && (at == text || at[1] == ',' || at[1] == '\0'))) {
            return false;
        }
    }
    out->forward = text[0] != '\0' ? text : NULL;
    return true;
}

/* Whether it can be part of a file's name. */
static bool is_name(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._-+", *at) == NULL) {
            return false;
        }
    }
    return text[0] != '.';
}

bool ms_option_run_id(const char *text, struct ms_options *out)
{
    out->run_id = text;
    return is_name(text);
}

bool ms_option_cap_of(const char *text, struct ms_options *out)
{
    out->cap_of_run = strcmp(text, "run") == 0;
    return out->cap_of_run || strcmp(text, "process") == 0;
}

bool ms_option_group(const char *text, struct ms_options *out)
{
    out->group = text[0] != '\0' ? text : NULL;
    return is_name(text) && strlen(text) <= MS_GROUP_CHARACTERS_MAX;
}

bool ms_option_log(const char *text, struct ms_options *out)
{
    static const char *const names[] = {"off", "warn", "info", "debug"};
    for (int level = MS_LOG_OFF; level <= MS_LOG_DEBUG; level++) {
        if (strcmp(text, names[level]) == 0) {
            out->log = (enum ms_log_level)level;
            return true;
        }
    }
    return false;
}
