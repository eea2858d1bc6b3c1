/* SPDX-License-Identifier: Apache-2.0 */
/* What a user may have meant by a word that is not known: the name that is most like it. */
#ifndef MEMSHIM_ALLOCATOR_BASE_NEAREST_H
#define MEMSHIM_ALLOCATOR_BASE_NEAREST_H

#include <stddef.h>

#define MS_NEAREST_NAME_MAX 63 /* characters of the longest name to compare with */

/* The number of edits that turn `word` into a name of at most MS_NEAREST_NAME_MAX characters:
 * insertions, deletions and changes of a character; two neighbours that change places are one. 0:
 * the name begins with the word. SIZE_MAX: the two are no more alike than any two words, or the
 * name is longer. */
size_t ms_name_distance(const char *word, const char *name);

/* A search for the name that is most like a word. */
struct ms_nearest {
    const char *word;
    size_t least; /* the distance of the best name so far; SIZE_MAX: none is like the word */
    char *best;   /* that name; the caller's, best_bytes long */
    size_t best_bytes;
};

/* Compares one name, of `length` characters, with the word. ctx: struct ms_nearest. */
void ms_nearest_offer(void *ctx, const char *name, size_t length);

#define MS_MEANT_BYTES 320

/* Makes " (did you mean 'NAME'?)" for the end of a complaint, "" if `meant` is null or empty. A
 * long name is cut. Returns text. */
const char *ms_did_you_mean(const char *meant, char text[MS_MEANT_BYTES]);

#endif
