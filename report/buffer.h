/* Bytes that grow: the reports and the tables that the reader makes. Pages of its own, not the
 * application's heap: reports are also made in the traced process. */
#ifndef MEMSHIM_REPORT_BUFFER_H
#define MEMSHIM_REPORT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct ms_buffer {
    char *at;
    size_t bytes, room;
    bool failed; /* memory ran out: what was added since is missing */
};

/* Room for `bytes` more, zeroed, counted as added; null where memory ran out. */
void *ms_buffer_extend(struct ms_buffer *buffer, size_t bytes);

void ms_buffer_append(struct ms_buffer *buffer, const char *from, size_t bytes);
void ms_buffer_add(struct ms_buffer *buffer, const char *text);
void ms_buffer_format(struct ms_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Text of a stranger's as one line of a text report: what is not printable UTF-8 becomes \xNN, also
 * the controls that reorder text. */
void ms_buffer_add_plain(struct ms_buffer *buffer, const char *text);

void ms_buffer_free(struct ms_buffer *buffer);

/* Writes everything to the open file. 0 or an errno. */
int ms_buffer_write(const struct ms_buffer *buffer, int fd);

/* Puts the file `path` in place in one step, complete or not at all. 0 or an errno. */
int ms_buffer_save(const struct ms_buffer *buffer, const char *path);

/* The length of the valid UTF-8 sequence at `text`, 0 where there is none; its code point. */
size_t ms_utf8_length(const char *text, unsigned *code_point);

#endif
