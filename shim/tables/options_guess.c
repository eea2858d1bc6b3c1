/* SPDX-License-Identifier: Apache-2.0 */
/* The switch that overrides all options, and guesses at what a bad value may have meant. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "allocator/base/nearest.h"
#include "allocator/base/units.h"
#include "shim/tables/options.h"

#define GUESSED_GIB     1024 /* a number without a unit means GiB up to here, MiB above */
#define GUESSED_PERCENT 10   /* a number without a sign means percent from here on */

/* Null if it is another variable. */
static const char *switch_value(const char *variable)
{
    static const char name[] = MS_OPTIONS_SWITCH "=";

    return strncmp(variable, name, strlen(name)) == 0 ? variable + strlen(name) : NULL;
}

bool ms_options_switched_off(char *const *environment)
{
    for (char *const *variable = environment; variable != NULL && *variable != NULL; variable++) {
        const char *value = switch_value(*variable);
        if (value != NULL) {
            return strcmp(value, "off") == 0;
        }
    }
    return false;
}

void ms_options_check_switch(const char *variable, ms_options_warn_t warn, void *ctx)
{
    const char *value = switch_value(variable);
    char sentence[256], meant[MS_OPTION_MEANT_BYTES], question[MS_MEANT_BYTES];
    if (value == NULL || value[0] == '\0' || strcmp(value, "on") == 0 ||
        strcmp(value, "off") == 0) {
        return;
    }
    ms_options_meant(value, "on or off", meant);
    (void)snprintf(sentence, sizeof(sentence),
                   MS_OPTIONS_SWITCH
                   "=%.128s is not usable: it takes on or off%.64s; memshim stays on",
                   value, ms_did_you_mean(meant, question));
    warn(ctx, sentence);
}

/* The length of the first word of a list such as "off, warn or info"; *next: where the next word
 * begins, null after the last. 0 if there is no word of such a list. */
static size_t list_word(const char *text, const char **next)
{
    const size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    const char *behind = text + length;

    if (strncmp(behind, ", ", 2) == 0) {
        *next = behind + 2;
    } else if (strncmp(behind, " or ", 4) == 0) {
        *next = behind + 4;
    } else {
        *next = NULL;
        return *behind == '\0' ? length : 0;
    }
    return length;
}

static bool is_list(const char *allowed)
{
    const char *next;
    size_t words = 0;

    for (const char *word = allowed; word != NULL; word = next) {
        if (list_word(word, &next) == 0) {
            return false;
        }
        words++;
    }
    return words > 1;
}

bool ms_option_words(const char *allowed, void (*each)(void *ctx, const char *word, size_t length),
                     void *ctx)
{
    const char *next;

    if (!is_list(allowed)) {
        return false;
    }
    for (const char *word = allowed; word != NULL; word = next) {
        const size_t length = list_word(word, &next);
        each(ctx, word, length);
    }
    return true;
}

/* Our word for a value as other programs spell it; otherwise the value. */
static const char *our_word(const char *value)
{
    static const struct {
        const char *said, *word;
    } known[] = {{"0", "off"},       {"no", "off"},      {"false", "off"}, {"none", "off"},
                 {"disable", "off"}, {"1", "on"},        {"yes", "on"},    {"true", "on"},
                 {"enable", "on"},   {"warning", "warn"}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcasecmp(value, known[i].said) == 0) {
            return known[i].word;
        }
    }
    return value;
}

/* The options' words are in lower case. */
static void guess_word(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES])
{
    char word[MS_OPTION_MEANT_BYTES];
    struct ms_nearest search = {word, SIZE_MAX, meant, MS_OPTION_MEANT_BYTES};

    (void)snprintf(word, sizeof(word), "%s", our_word(value));
    for (char *at = word; *at != '\0'; at++) {
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
    }
    (void)ms_option_words(allowed, ms_nearest_offer, &search);
}

/* Whether the option's example is a size in MiB. */
static bool is_small(const char *allowed)
{
    const char *example = strstr(allowed, "as in ");

    example = example ? example + strlen("as in ") : "";
    return strncmp(example + strspn(example, "0123456789"), "MiB", strlen("MiB")) == 0;
}

static void guess_number(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES])
{
    char digits[MS_OPTION_MEANT_BYTES] = "";
    const size_t length = strspn(value, "0123456789");
    const bool percent = value[length] == '%';
    uint64_t number = 0;
    (void)snprintf(digits, sizeof digits, "%.*s", (int)length, value);
    if (value[length + percent] != '\0' || !ms_parse_bytes(digits, &number) ||
        number < (percent ? 1 : 2)) {
        return;
    }
    if (!percent && strncmp(allowed, "a size", strlen("a size")) == 0 &&
        number < UINT64_C(1) << 20) {
        (void)snprintf(meant, MS_OPTION_MEANT_BYTES, "%.32s%s", value,
                       number <= GUESSED_GIB && !is_small(allowed) ? "GiB" : "MiB");
    } else if (strncmp(allowed, "a fraction", strlen("a fraction")) == 0 && number <= 100 &&
               (percent || number >= GUESSED_PERCENT)) {
        (void)ms_decimal_text((int64_t)number * 10000, meant, MS_OPTION_MEANT_BYTES);
    }
}

void ms_options_meant(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES])
{
    meant[0] = '\0';
    guess_word(value, allowed, meant);
    if (meant[0] == '\0') {
        guess_number(value, allowed, meant);
    }
}
