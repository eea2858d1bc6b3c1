/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a card by name, size or file. */
#include "shim/cli/dry_run/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "allocator/base/nearest.h"
#include "allocator/base/units.h"
#include "shim/cli/arguments/commands.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/tables/options.h"

#define LARGEST_CARD ((uint64_t)4 << 40) /* its addresses are reserved */
#define MOST_LINES   1000                /* of a file */

static bool take_size(const char *text, uint64_t *bytes)
{
    return ms_parse_size(text, bytes) && *bytes <= LARGEST_CARD;
}

/* sscanf would take a sign. */
static bool begins_with_digit(const char *text)
{
    return *text >= '0' && *text <= '9';
}

enum card_key { NAME, MEMORY, CONTEXT, CAPABILITY, PROCESSORS, BUS, KEY_COUNT };

static const char *const keys[KEY_COUNT] = {"name",       "memory",     "context",
                                            "capability", "processors", "bus"};

static enum card_key find_key(const char *word)
{
    int key = 0;

    while (key < KEY_COUNT && strcmp(word, keys[key]) != 0) {
        key++;
    }
    return (enum card_key)key;
}

static bool take_value(enum card_key key, const char *value, struct ms_card *card)
{
    char rest;

    switch (key) {
    case NAME:
        return snprintf(card->name, sizeof(card->name), "%s", value) < (int)sizeof(card->name);
    case MEMORY:
        return take_size(value, &card->total_bytes);
    case CONTEXT:
        card->context_known = MS_CARD_GIVEN;
        card->context_cuda = "";
        return ms_parse_bytes(value, &card->context_bytes);
    case CAPABILITY:
        return begins_with_digit(value) &&
               sscanf(value, "%2u.%1u%c", &card->major, &card->minor, &rest) == 2;
    case PROCESSORS:
        return begins_with_digit(value) && sscanf(value, "%4u%c", &card->processors, &rest) == 1 &&
               card->processors > 0;
    case BUS:
        card->bus_known = MS_CARD_GIVEN;
        return ms_parse_bytes(value, &card->bus_bytes_per_s) && card->bus_bytes_per_s > 0;
    default:
        return false;
    }
}

/* A file that describes a card. */
struct card_description {
    const char *path;
    unsigned line;             /* its number, from 1 */
    unsigned lines[KEY_COUNT]; /* of keys that were there; 0: not yet */
};

/* Changes `line`. False, after an error message: no valid line. */
static bool take_line(struct card_description *file, char *line, struct ms_card *card)
{
    char *word = line + strspn(line, " \t");
    const size_t length = strcspn(word, " \t\r\n");
    char *value = word + length + strspn(word + length, " \t");
    enum card_key key;

    if (file->line <= MOST_LINES && (*word == '#' || length == 0)) {
        return true;
    }
    word[length] = '\0';
    value[strcspn(value, "\r\n")] = '\0';
    key = find_key(word);
    if (file->line > MOST_LINES || *value == '\0' || !take_value(key, value, card)) {
        complain("%s:%u is none of: name TEXT (%d characters at most), memory SIZE (%s at most), "
                 "context SIZE, capability 9.0, processors N, bus SIZE (a second)",
                 file->path, file->line, MS_CARD_NAME_BYTES - 1, MS_BYTES(LARGEST_CARD));
        return false;
    }
    if (file->lines[key] > 0) {
        complain("%s:%u has '%s' again: it is in line %u, too", file->path, file->line, keys[key],
                 file->lines[key]);
        return false;
    }
    file->lines[key] = file->line;
    return true;
}

/* Whether a job has room on it. */
static bool holds_context(const struct ms_card *card, const char *text)
{
    if (card->total_bytes > card->context_bytes) {
        return true;
    }
    complain("--gpu %s: of %s nothing is left, because a context takes %s", text,
             MS_BYTES(card->total_bytes), MS_BYTES(card->context_bytes));
    return false;
}

static bool take_file(const char *path, struct ms_card *card)
{
    FILE *file = fopen(path, "re");
    char line[256];
    struct card_description description = {.path = path};
    bool good = true;

    if (!file) {
        complain("--gpu %s: %s", path, strerror(errno));
        return false;
    }
    card->total_bytes = 0;
    (void)snprintf(card->name, sizeof(card->name), "card");
    while (good && fgets(line, sizeof(line), file)) {
        description.line++;
        good = take_line(&description, line, card);
    }
    if (ferror(file)) {
        complain("--gpu %s: %s", path, strerror(errno));
        (void)fclose(file);
        return false;
    }
    (void)fclose(file);
    if (good && card->total_bytes == 0) {
        complain("%s has no line `memory SIZE`", path);
        good = false;
    }
    return good;
}

/* The only card whose name has it as a part; null: there is none, or several. */
static const char *card_with(const char *part)
{
    const char *found = NULL;

    for (size_t i = 0; i < ms_card_count(); i++) {
        if (strcasestr(ms_card_at(i)->id, part)) {
            if (found) {
                return NULL;
            }
            found = ms_card_at(i)->id;
        }
    }
    return found;
}

/* The card with the name most like it; null if none is. */
static const char *nearest_card(const char *text)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < ms_card_count(); i++) {
        const size_t distance = ms_name_distance(text, ms_card_at(i)->id);

        if (distance < least) {
            best = ms_card_at(i)->id;
            least = distance;
        }
    }
    return best;
}

static void say_cards(const char *text)
{
    struct ms_buffer names = {0};
    char size[MS_OPTION_MEANT_BYTES], question[MS_MEANT_BYTES];
    const char *meant = card_with(text);

    ms_options_meant(text, "a size", size);
    if (!meant) {
        meant = size[0] ? size : nearest_card(text);
    }
    for (size_t i = 0; i < ms_card_count(); i++) {
        ms_buffer_format(&names, "%s%s", i ? ", " : "", ms_card_at(i)->id);
    }
    ms_buffer_append(&names, "", 1);
    complain("--gpu is a card, a size as in 80GiB (%s at most), or a file that describes one, not "
             "'%s'%s; "
             "cards: %s",
             MS_BYTES(LARGEST_CARD), text, ms_did_you_mean(meant, question),
             names.failed ? "" : names.at);
    ms_buffer_free(&names);
}

bool ms_dry_card_take(const char *text, struct ms_card *card)
{
    const struct ms_card *found = ms_card_find(text);

    if (found) {
        *card = *found;
        return true;
    }
    *card = *ms_card_at(0);
    (void)snprintf(card->id, sizeof(card->id), "given");
    card->total_known = MS_CARD_GIVEN;
    card->bus_known = MS_CARD_GUESSED;
    card->source = "--gpu";
    if (take_size(text, &card->total_bytes)) {
        (void)snprintf(card->name, sizeof(card->name), "card of %.32s", text);
        return holds_context(card, text);
    }
    if (access(text, F_OK) == 0) {
        return take_file(text, card) && holds_context(card, text);
    }
    say_cards(text);
    return false;
}
