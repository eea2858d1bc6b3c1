/* SPDX-License-Identifier: Apache-2.0 */
/* Growing bytes, for reports and for the reader's tables. They lie on pages of their own, not on
 * the application's heap: the trace's writer fills some in the traced process. */
#ifndef MEMSHIM_ALLOCATOR_BASE_BUFFER_H
#define MEMSHIM_ALLOCATOR_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct ms_buffer {
    char *at;
    size_t bytes, room;
    bool failed; /* memory ran out: later additions are missing */
};

/* Adds `bytes` zeroed bytes and returns them; null: memory ran out. */
void *ms_buffer_extend(struct ms_buffer *buffer, size_t bytes);

void ms_buffer_append(struct ms_buffer *buffer, const char *from, size_t bytes);
void ms_buffer_add(struct ms_buffer *buffer, const char *text);
void ms_buffer_format(struct ms_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a stranger's text in a form that is safe to show in one line (plain.h). */
void ms_buffer_add_plain(struct ms_buffer *buffer, const char *text);

void ms_buffer_free(struct ms_buffer *buffer);

/* Writes everything to the open file. 0 or an errno. */
int ms_buffer_write(const struct ms_buffer *buffer, int fd);

/* Replaces what the open file has, in its place: its owner, mode and links stay. A file keeps what
 * it had if there is no room for the new. What is no regular file is written to. 0 or an errno. */
int ms_buffer_overwrite(const struct ms_buffer *buffer, int fd);

/* Replaces the file `path` in one step: readers see all of it or the old one. 0 or an errno. */
int ms_buffer_save(const struct ms_buffer *buffer, const char *path);

#endif
