/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options.def: read from an environment, and printed. */
#include "shim/tables/options.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/nearest.h"
#include "shim/tables/option_parsers.h"

#define PREFIX            "MEMSHIM_"
#define PREFIX_CHARACTERS (sizeof(PREFIX) - 1)

/* --- The table ---------------------------------------------------------------------------------
 */

struct option {
    const char *name;
    const char *fallback; /* default; empty: none */
    const char *allowed;
    const char *meaning;
    bool (*parse)(const char *text, struct ms_options *out); /* null: only scripts read it */
};

static const struct option options[] = {
#define MS_OPTION(name, fallback, allowed, meaning, parser) \
    {PREFIX #name, fallback, allowed, meaning, parser},
#define MS_SCRIPT_OPTION(name, fallback, meaning) \
    {PREFIX #name, fallback, "a folder", meaning, NULL},
#include "shim/tables/options.def"
};

#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

/* The value of `name` in a NAME=value string; null if that has another name. */
static const char *value_of(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=' ? variable + length + 1
                                                                           : NULL;
}

/* The option whose name is most like the one given, without the prefix; null where none is. */
static const char *nearest_name(const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const size_t distance = ms_name_distance(name, options[i].name + PREFIX_CHARACTERS);
        if (distance < least) {
            best = options[i].name;
            least = distance;
        }
    }
    return best;
}

static void warn_unknown(const char *variable, ms_options_warn_t warn, void *ctx)
{
    size_t length = strcspn(variable, "=");
    if (length > MS_OPTION_VALUE_CHARACTERS) {
        length = MS_OPTION_VALUE_CHARACTERS;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strlen(options[i].name) == length && strncmp(variable, options[i].name, length) == 0) {
            return;
        }
    }
    char name[MS_OPTION_VALUE_CHARACTERS + 1], sentence[2 * MS_OPTION_VALUE_CHARACTERS + 128];
    char question[MS_MEANT_BYTES];
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, variable);
    (void)snprintf(
        sentence, sizeof(sentence),
        "%s is not an option of memshim and has no effect%.96s; `memshim options` lists all", name,
        ms_did_you_mean(nearest_name(name + PREFIX_CHARACTERS), question));
    warn(ctx, sentence);
}

static void parse_one(const struct option *option, const char *value, struct ms_options *out,
                      ms_options_warn_t warn, void *ctx)
{
    struct ms_options changed = *out;
    if (value[0] == '\0') {
        return; /* an empty value counts as not set */
    }
    if (option->parse(value, &changed)) {
        *out = changed;
        return;
    }
    char sentence[2 * MS_OPTION_VALUE_CHARACTERS + 128], meant[MS_OPTION_MEANT_BYTES];
    char question[MS_MEANT_BYTES];
    ms_options_meant(value, option->allowed, meant);
    (void)snprintf(
        sentence, sizeof(sentence), "%s=%.*s is not usable: it takes %s%.64s; %s%s", option->name,
        MS_OPTION_VALUE_CHARACTERS, value, option->allowed, ms_did_you_mean(meant, question),
        option->fallback[0] != '\0' ? "the default stays: " : "it stays unset", option->fallback);
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
                              uint64_t *fraction_ppb)
{
    struct ms_cap_rule rule = parsed->cap_all;
    if (device >= 0 && device < MS_DEVICES_MAX) {
        const struct ms_cap_rule *own = &parsed->cap[device];
        rule.fraction_ppb = own->fraction_ppb > 0 ? own->fraction_ppb : rule.fraction_ppb;
        rule.limit_bytes = own->limit_bytes > 0 ? own->limit_bytes : rule.limit_bytes;
    }
    uint64_t cap_bytes = total_bytes;
    *fraction_ppb = MS_PPB;
    if (rule.fraction_ppb > 0 && rule.fraction_ppb < MS_PPB) {
        cap_bytes = ms_of_ppb(total_bytes, rule.fraction_ppb);
        *fraction_ppb = rule.fraction_ppb;
    }
    if (rule.limit_bytes > 0 && rule.limit_bytes < cap_bytes) {
        cap_bytes = rule.limit_bytes;
        *fraction_ppb = 0;
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

/* Whether a NAME=value string belongs into the report. Not what memshim sets itself, nor what only
 * the scripts read. */
static bool is_reported(const char *variable)
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
        if (is_reported(*variable) && used + length + 2 <= text_bytes) {
            memcpy(text + used, *variable, length);
            text[used + length] = '\n';
            used += length + 1;
            text[used] = '\0';
        }
    }
    return text;
}
