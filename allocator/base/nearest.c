/* SPDX-License-Identifier: Apache-2.0 */
/* The distance between two names in edits (Levenshtein's). */
#include "allocator/base/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* SIZE_MAX where `to` is too long. */
static size_t edit_distance(const char *from, size_t from_length, const char *to)
{
    size_t row[MS_NEAREST_NAME_MAX + 1];
    const size_t to_length = strlen(to);

    if (to_length > MS_NEAREST_NAME_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= to_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= from_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= to_length; j++) {
            const size_t changed = diagonal + (from[i - 1] != to[j - 1] ? 1 : 0);
            const size_t moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = changed < moved ? changed : moved;
        }
    }
    return row[to_length];
}

/* The same but for two letters beside each other that changed places. */
static bool swapped(const char *word, const char *name)
{
    size_t at = 0;

    while (word[at] != '\0' && word[at] == name[at]) {
        at++;
    }
    return word[at] != '\0' && name[at] != '\0' && word[at] == name[at + 1] &&
           word[at + 1] == name[at] && strcmp(word + at + 2, name + at + 2) == 0;
}

size_t ms_name_distance(const char *word, const char *name)
{
    const size_t length = strlen(word);
    const size_t edits = length > 0 && strncmp(word, name, length) == 0 ? 0
                         : swapped(word, name)                          ? 1
                                               : edit_distance(word, length, name);

    return edits <= (length < 6 ? 1 : length / 3) ? edits : SIZE_MAX;
}

const char *ms_did_you_mean(const char *meant, char text[MS_MEANT_BYTES])
{
    text[0] = '\0';
    if (meant && meant[0]) {
        (void)snprintf(text, MS_MEANT_BYTES, " (did you mean '%.255s'?)", meant);
    }
    return text;
}

void ms_nearest_offer(void *ctx, const char *name, size_t length)
{
    struct ms_nearest *search = ctx;
    char text[MS_NEAREST_NAME_MAX + 1];

    if (length < sizeof(text) && length < search->best_bytes) {
        memcpy(text, name, length);
        text[length] = '\0';

        const size_t distance = ms_name_distance(search->word, text);

        if (distance < search->least) {
            search->least = distance;
            memcpy(search->best, text, length + 1);
        }
    }
}
