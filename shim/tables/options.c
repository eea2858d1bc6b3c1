/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and prints the options of options.def. */
#include "shim/tables/options.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "allocator/base/nearest.h"

#define PREFIX            "MEMSHIM_"
#define PREFIX_CHARACTERS (sizeof(PREFIX) - 1)
#define SMALLEST_LIMIT    (UINT64_C(1) << 20)
#define VALUE_CHARACTERS  256

/* --- Numbers ---------------------------------------------------------------------------------- */

/* Not strtod: the application's locale may want another decimal point. Returns where it stopped,
 * null where no number begins. */
static const char *scan_number(const char *text, double *number)
{
    double value = 0, unit = 1;
    bool any = false, behind_point = false;
    for (;; text++) {
        if (*text == '.' && !behind_point) {
            behind_point = true;
        } else if (*text >= '0' && *text <= '9') {
            any = true;
            value = value * 10 + (*text - '0');
            unit *= behind_point ? 10 : 1;
        } else {
            break;
        }
    }
    *number = value / unit;
    return any ? text : NULL;
}

bool ms_parse_fraction(const char *text, double *fraction)
{
    double number;
    const char *end = scan_number(text, &number);
    if (end == NULL || *end != '\0' || number <= 0 || number > 1) {
        return false;
    }
    *fraction = number;
    return true;
}

bool ms_parse_bytes(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"KiB", 0x1p10}, {"KB", 1e3},
                 {"M", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},     {"G", 0x1p30},   {"GiB", 0x1p30},
                 {"GB", 1e9},   {"T", 0x1p40},   {"TiB", 0x1p40}, {"TB", 1e12}};
    double number;
    const char *unit = scan_number(text, &number);
    if (unit == NULL) {
        return false;
    }
    unit += *unit == ' ' ? 1 : 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        double value = number * units[i].factor;
        if (strcasecmp(unit, units[i].name) == 0 && value < 0x1p63) {
            *bytes = (uint64_t)value;
            return true;
        }
    }
    return false;
}

/* --- One parser for each option ----------------------------------------------------------------
 */

/* One item of a cap: [device:]value. Without a device it is for all of them, and must be of the
 * option's own kind. */
static bool parse_cap_item(const char *item, bool fractions, struct ms_options *out)
{
    struct ms_cap_rule *rule = &out->cap_all;
    const char *colon = strchr(item, ':');
    const char *value = item;
    double device = 0, fraction = 0;
    uint64_t bytes = 0;
    if (colon != NULL) {
        if (scan_number(item, &device) != colon || device != (int)device ||
            device >= MS_DEVICES_MAX) {
            return false;
        }
        rule = &out->cap[(int)device];
        value = colon + 1;
    }
    if ((fractions || colon != NULL) && ms_parse_fraction(value, &fraction)) {
        rule->fraction = fraction;
        return true;
    }
    if ((!fractions || colon != NULL) && ms_parse_bytes(value, &bytes) && bytes >= SMALLEST_LIMIT) {
        rule->limit_bytes = bytes;
        return true;
    }
    return false;
}

/* Comma-separated items, each copied without the blanks around it. False at the first that is too
 * long, empty, or refused. */
static bool each_item(const char *text, bool (*item_is_good)(void *ctx, const char *item),
                      void *ctx)
{
    for (;;) {
        char item[VALUE_CHARACTERS];
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

static bool parse_fraction_cap(const char *text, struct ms_options *out)
{
    return parse_cap(text, true, out);
}

static bool parse_limit_cap(const char *text, struct ms_options *out)
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

static bool parse_pool(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->pool);
}

static bool parse_age(const char *text, uint64_t *ns)
{
    const double most_days = 36500;
    double days;
    const char *end = scan_number(text, &days);
    if (end == NULL || strcmp(end, "d") != 0 || days <= 0 || days > most_days) {
        return false;
    }
    *ns = (uint64_t)(days * 86400e9);
    return true;
}

bool ms_parse_keep(const char *text, struct ms_keep *keep)
{
    struct ms_keep parsed = {0};
    char part[VALUE_CHARACTERS];
    for (const char *at = text; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (length >= sizeof part) {
            return false;
        }
        (void)snprintf(part, sizeof part, "%.*s", (int)length, at);
        bool size = parsed.bytes == 0 && ms_parse_bytes(part, &parsed.bytes) &&
                    parsed.bytes >= SMALLEST_LIMIT;
        if (!size && (parsed.age_ns != 0 || !parse_age(part, &parsed.age_ns))) {
            return false;
        }
    }
    *keep = parsed;
    return true;
}

static bool parse_keep(const char *text, struct ms_options *out)
{
    out->keep = (struct ms_keep){0};
    return text[0] == '\0' || ms_parse_keep(text, &out->keep);
}

/* As the report reads it again (report/render/source.c). */
static bool parse_source(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->source);
}

static bool parse_trace(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->trace);
}

const char *ms_torch_mode_name(enum ms_torch_mode mode)
{
    static const char *const names[] = {"native", "tensor", "off"};
    return names[mode];
}

static bool parse_torch(const char *text, struct ms_options *out)
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

static bool parse_frameworks(const char *text, struct ms_options *out)
{
    uint32_t found = strcmp(text, "auto") == 0 ? (1u << MS_FRAMEWORKS) - 1 : 0;
    if (found == 0 && strcmp(text, "off") != 0 && !each_item(text, framework_item, &found)) {
        return false;
    }
    out->frameworks = found;
    return true;
}

static bool parse_stacks(const char *text, struct ms_options *out)
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

static bool parse_stack_depth(const char *text, struct ms_options *out)
{
    double depth;
    const char *end = scan_number(text, &depth);
    if (end == NULL || *end != '\0' || depth < 1 || depth > MS_STACK_DEPTH_MAX ||
        depth != (uint32_t)depth) {
        return false;
    }
    out->stack_depth = (uint32_t)depth;
    return true;
}

static bool parse_sample_bytes(const char *text, struct ms_options *out)
{
    return ms_parse_bytes(text, &out->sample_bytes);
}

static bool parse_views(const char *text, struct ms_options *out)
{
    return parse_switch(text, &out->views);
}

static bool parse_spill(const char *text, struct ms_options *out)
{
    bool on = strcmp(text, "auto") == 0;
    if (!on && strcmp(text, "off") != 0) {
        return false;
    }
    out->spill = on;
    return true;
}

static bool parse_spill_limit(const char *text, struct ms_options *out)
{
    uint64_t bytes = 0;
    if (text[0] != '\0' && (!ms_parse_bytes(text, &bytes) || bytes < SMALLEST_LIMIT)) {
        return false;
    }
    out->spill_limit_bytes = bytes;
    return true;
}

/* As the report reads it again (report/read/batch.c). */
static bool parse_batch(const char *text, struct ms_options *out)
{
    double samples;
    if (text[strspn(text, "0123456789")] != '\0' || scan_number(text, &samples) == NULL ||
        samples < 1 || samples > UINT32_MAX) {
        return false;
    }
    out->batch = (uint32_t)samples;
    return true;
}

static bool parse_status_every(const char *text, struct ms_options *out)
{
    const double longest = 1e6; /* seconds: 11 days */
    double number = 0;
    const char *unit = text[0] != '\0' ? scan_number(text, &number) : text;
    const bool seconds = unit != NULL && strcmp(unit, "s") == 0;
    if (unit == NULL || (unit[0] != '\0' && !seconds) || number > longest ||
        (text[0] != '\0' && (seconds ? number < 1e-3 : number < 1 || number != (int)number))) {
        return false;
    }
    out->status_steps = seconds ? 0 : (uint64_t)number;
    out->status_ns = seconds ? (uint64_t)(number * 1e9) : 0;
    return true;
}

static bool parse_wait(const char *text, struct ms_options *out)
{
    double milliseconds;
    const char *end = scan_number(text, &milliseconds);
    if (end == NULL || *end != '\0' || milliseconds > 600e3) {
        return false;
    }
    out->wait_ns = (uint64_t)(milliseconds * 1e6);
    return true;
}

static bool parse_report_wait(const char *text, struct ms_options *out)
{
    double seconds;
    const char *end = scan_number(text, &seconds);
    if (end == NULL || *end != '\0' || seconds > 3600) {
        return false;
    }
    out->report_wait_ns = (uint64_t)(seconds * 1e9);
    return true;
}

struct threshold_parse {
    double levels[3];
    int count;
};

static bool threshold_item(void *ctx, const char *item)
{
    struct threshold_parse *parse = ctx;
    double level;
    if (parse->count == 3 || !ms_parse_fraction(item, &level) ||
        (parse->count > 0 && level <= parse->levels[parse->count - 1])) {
        return false;
    }
    parse->levels[parse->count++] = level;
    return true;
}

static bool parse_thresholds(const char *text, struct ms_options *out)
{
    struct threshold_parse parse = {.count = 0};
    if (!each_item(text, threshold_item, &parse) || parse.count != 3) {
        return false;
    }
    memcpy(out->thresholds, parse.levels, sizeof(out->thresholds));
    return true;
}

static bool parse_trace_limit(const char *text, struct ms_options *out)
{
    uint64_t bytes;
    if (!ms_parse_bytes(text, &bytes) || bytes < SMALLEST_LIMIT) {
        return false;
    }
    out->trace_limit_bytes = bytes;
    return true;
}

static bool parse_output(const char *text, struct ms_options *out)
{
    out->output_dir = text;
    return strlen(text) < PATH_MAX;
}

static bool parse_forward(const char *text, struct ms_options *out)
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

/* What may be part of a file's name. */
static bool is_name(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._-+", *at) == NULL) {
            return false;
        }
    }
    return text[0] != '.';
}

static bool parse_run_id(const char *text, struct ms_options *out)
{
    out->run_id = text;
    return is_name(text);
}

static bool parse_cap_of(const char *text, struct ms_options *out)
{
    out->cap_of_run = strcmp(text, "run") == 0;
    return out->cap_of_run || strcmp(text, "process") == 0;
}

static bool parse_group(const char *text, struct ms_options *out)
{
    out->group = text[0] != '\0' ? text : NULL;
    return is_name(text) && strlen(text) <= MS_GROUP_CHARACTERS_MAX;
}

static bool parse_log(const char *text, struct ms_options *out)
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

/* --- The table ---------------------------------------------------------------------------------
 */

struct option {
    const char *name;
    const char *fallback; /* the default; empty: none */
    const char *allowed;
    const char *meaning;
    bool (*parse)(const char *text, struct ms_options *out); /* null: read by scripts alone */
};

static const struct option options[] = {
#define MS_OPTION(name, fallback, allowed, meaning, parser) \
    {PREFIX #name, fallback, allowed, meaning, parser},
#define MS_SCRIPT_OPTION(name, fallback, meaning) \
    {PREFIX #name, fallback, "a folder", meaning, NULL},
#include "shim/tables/options.def"
};

#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

/* The value of `name` in a NAME=value string; null where it is another name. */
static const char *value_of(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=' ? variable + length + 1
                                                                           : NULL;
}

static const char *nearest_name(const char *name, size_t length)
{
    size_t best = 0;
    for (size_t i = 1; i < OPTION_COUNT; i++) {
        if (ms_edit_distance(name, length, options[i].name) <
            ms_edit_distance(name, length, options[best].name)) {
            best = i;
        }
    }
    return options[best].name;
}

static void warn_unknown(const char *variable, ms_options_warn_t warn, void *ctx)
{
    size_t length = strcspn(variable, "=");
    if (length > VALUE_CHARACTERS) {
        length = VALUE_CHARACTERS;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strlen(options[i].name) == length && strncmp(variable, options[i].name, length) == 0) {
            return;
        }
    }
    char sentence[2 * VALUE_CHARACTERS + 128];
    (void)snprintf(sentence, sizeof(sentence),
                   "%.*s is no option of memshim and has no effect; did you mean %s? "
                   "(`memshim options` lists all)",
                   (int)length, variable, nearest_name(variable, length));
    warn(ctx, sentence);
}

static void parse_one(const struct option *option, const char *value, struct ms_options *out,
                      ms_options_warn_t warn, void *ctx)
{
    struct ms_options changed = *out;
    if (value[0] == '\0') {
        return; /* set to nothing: as if it were not set */
    }
    if (option->parse(value, &changed)) {
        *out = changed;
        return;
    }
    char sentence[2 * VALUE_CHARACTERS + 128], meant[MS_OPTION_MEANT_BYTES];
    ms_options_meant(value, option->allowed, meant);
    (void)snprintf(sentence, sizeof(sentence), "%s=%.*s is not usable: it takes %s%s%s%s; %s%s",
                   option->name, VALUE_CHARACTERS, value, option->allowed,
                   meant[0] != '\0' ? " (did you mean " : "", meant, meant[0] != '\0' ? "?)" : "",
                   option->fallback[0] != '\0' ? "the default stays: " : "it stays unset",
                   option->fallback);
    warn(ctx, sentence);
}

void ms_options_parse(char *const *environment, struct ms_options *out, ms_options_warn_t warn,
                      void *ctx)
{
    *out = (struct ms_options){0};
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (options[i].parse != NULL) {
            parse_one(&options[i], options[i].fallback, out, warn, ctx);
        }
    }
    for (char *const *variable = environment; variable != NULL && *variable != NULL; variable++) {
        if (strncmp(*variable, PREFIX, PREFIX_CHARACTERS) != 0) {
            ms_options_check_switch(*variable, warn, ctx);
            continue;
        }
        warn_unknown(*variable, warn, ctx);
        for (size_t i = 0; i < OPTION_COUNT; i++) {
            const char *value = value_of(*variable, options[i].name);
            if (value != NULL && options[i].parse != NULL) {
                parse_one(&options[i], value, out, warn, ctx);
            }
        }
    }
    if ((out->frameworks >> MS_FRAMEWORK_TORCH & 1u) == 0) {
        out->torch = MS_TORCH_OFF;
    }
}

uint64_t ms_options_cap_bytes(const struct ms_options *parsed, int device, uint64_t total_bytes,
                              double *fraction)
{
    struct ms_cap_rule rule = parsed->cap_all;
    if (device >= 0 && device < MS_DEVICES_MAX) {
        const struct ms_cap_rule *own = &parsed->cap[device];
        rule.fraction = own->fraction > 0 ? own->fraction : rule.fraction;
        rule.limit_bytes = own->limit_bytes > 0 ? own->limit_bytes : rule.limit_bytes;
    }
    uint64_t cap_bytes = total_bytes;
    *fraction = 1;
    if (rule.fraction > 0 && rule.fraction < 1) {
        cap_bytes = (uint64_t)(rule.fraction * (double)total_bytes);
        *fraction = rule.fraction;
    }
    if (rule.limit_bytes > 0 && rule.limit_bytes < cap_bytes) {
        cap_bytes = rule.limit_bytes;
        *fraction = 0;
    }
    return cap_bytes;
}

/* --- For people --------------------------------------------------------------------------------
 */

static void print_option(const struct option *option, bool markdown, ms_options_write_t write,
                         void *ctx)
{
    char text[1024];
    const char *format =
        markdown ? "| `%s` | %s%s%s | %s | %s |\n" : "%s (default %s%s%s)\n    %s\n    %s\n";
    bool quoted = markdown && option->fallback[0] != '\0';
    const char *fallback = option->fallback[0] != '\0' ? option->fallback : "none";
    (void)snprintf(text, sizeof(text), format, option->name, quoted ? "`" : "", fallback,
                   quoted ? "`" : "", option->allowed, option->meaning);
    write(ctx, text);
}

void ms_options_print(bool markdown, ms_options_write_t write, void *ctx)
{
    if (markdown) {
        write(ctx, "| option | default | values | meaning |\n|---|---|---|---|\n");
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        print_option(&options[i], markdown, write, ctx);
    }
}

/* Whether a NAME=value string is for the report: not what memshim sets itself, nor what only the
 * scripts read. */
static bool is_told(const char *variable)
{
    if (strncmp(variable, PREFIX, PREFIX_CHARACTERS) != 0 ||
        value_of(variable, PREFIX "RUN_ID") != NULL) {
        return false;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (options[i].parse == NULL && value_of(variable, options[i].name) != NULL) {
            return false;
        }
    }
    return true;
}

char *ms_options_set_text(char *const *environment, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (char *const *variable = environment; variable != NULL && *variable != NULL; variable++) {
        size_t length = strlen(*variable);
        if (is_told(*variable) && used + length + 2 <= text_bytes) {
            memcpy(text + used, *variable, length);
            text[used + length] = '\n';
            used += length + 1;
            text[used] = '\0';
        }
    }
    return text;
}
