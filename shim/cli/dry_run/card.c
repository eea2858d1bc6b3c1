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
#include "shim/cli/arguments/commands.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/tables/options.h"

#define SMALLEST_CARD ((uint64_t)1 << 20) /* fewer bytes are a number without its unit */

static bool take_key(const char *key, const char *value, struct ms_card *card)
{
    if (strcmp(key, "name") == 0) {
        return snprintf(card->name, sizeof(card->name), "%s", value) < (int)sizeof(card->name);
    }
    if (strcmp(key, "memory") == 0) {
        return ms_parse_bytes(value, &card->total_bytes) && card->total_bytes >= SMALLEST_CARD;
    }
    if (strcmp(key, "context") == 0) {
        card->context_known = MS_CARD_GIVEN;
        return ms_parse_bytes(value, &card->context_bytes);
    }
    if (strcmp(key, "capability") == 0) {
        char rest;

        return sscanf(value, "%2u.%1u%c", &card->major, &card->minor, &rest) == 2;
    }
    if (strcmp(key, "processors") == 0) {
        char rest;

        return sscanf(value, "%4u%c", &card->processors, &rest) == 1 && card->processors > 0;
    }
    return false;
}

/* Changes `line`. False: no valid line. */
static bool take_line(char *line, struct ms_card *card)
{
    char *key = line + strspn(line, " \t");
    const size_t length = strcspn(key, " \t\n");
    char *value = key + length + strspn(key + length, " \t");

    if (*key == '#' || *key == '\n' || *key == '\0') {
        return true;
    }
    key[length] = '\0';
    value[strcspn(value, "\n")] = '\0';
    return *value != '\0' && take_key(key, value, card);
}

static bool take_file(const char *path, struct ms_card *card)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned number = 0;
    bool good = true;

    if (!file) {
        complain("--gpu %s: %s", path, strerror(errno));
        return false;
    }
    card->total_bytes = 0;
    (void)snprintf(card->name, sizeof(card->name), "card");
    while (good && fgets(line, sizeof(line), file)) {
        number++;
        good = take_line(line, card);
    }
    if (ferror(file)) {
        complain("--gpu %s: %s", path, strerror(errno));
        (void)fclose(file);
        return false;
    }
    (void)fclose(file);
    if (!good) {
        complain("%s:%u is none of: name TEXT, memory SIZE, context SIZE, capability 9.0, "
                 "processors N",
                 path, number);
    } else if (card->total_bytes == 0) {
        complain("%s has no line `memory SIZE`", path);
        good = false;
    }
    return good;
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
    const char *meant = size;

    ms_options_meant(text, "a size", size);
    if (size[0] == '\0') {
        meant = nearest_card(text);
    }

    for (size_t i = 0; i < ms_card_count(); i++) {
        ms_buffer_format(&names, "%s%s", i ? ", " : "", ms_card_at(i)->id);
    }
    ms_buffer_append(&names, "", 1);
    complain("--gpu is a card, a size as in 80GiB, or a file that describes one, not '%s'%s; "
             "cards: %s",
             text, ms_did_you_mean(meant, question), names.failed ? "" : names.at);
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
    card->source = "--gpu";
    if (ms_parse_bytes(text, &card->total_bytes) && card->total_bytes >= SMALLEST_CARD) {
        (void)snprintf(card->name, sizeof(card->name), "card of %.32s", text);
        return true;
    }
    if (access(text, F_OK) == 0) {
        return take_file(text, card);
    }
    say_cards(text);
    return false;
}
