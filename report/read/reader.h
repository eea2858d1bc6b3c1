/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file without trusting any byte of it: gives the extents that pass every check, in
 * order, and counts those that do not. It maps nothing, so a file that shrinks meanwhile is an
 * error and not a signal. */
#ifndef MEMSHIM_REPORT_READ_READER_H
#define MEMSHIM_REPORT_READ_READER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/trace/format.h"

struct ms_extent_place {
    uint64_t offset, sequence;
    uint64_t first_event; /* windows */
    uint64_t committed_bytes;
    uint32_t count;      /* records or entries */
    uint64_t done_bytes; /* for a reader that returns for records committed since */
};

struct ms_reader {
    int fd;
    char path[PATH_MAX];
    uint64_t file_bytes;
    struct ms_file_header header; /* every string is terminated */
    bool header_damaged;          /* its checksum is wrong: names may be wrong */
    bool running;                 /* its process still holds the file */
    bool cut;                     /* the file ends inside an extent */
    struct ms_buffer windows, logs, devices, sites,
        digests;                   /* struct ms_extent_place, by sequence */
    struct ms_tail tail;           /* the newest events; read with ms_reader_tail */
    uint64_t tail_first, tail_end; /* its events have the numbers from tail_first to tail_end - 1 */
    uint64_t strange_extents;      /* of unknown kind, damaged, or of another trace */
    char *extent; /* one extent, read by the last ms_reader_load; MS_RECORD_MAX_BYTES follow it */
};

/* path: a trace file. False, with a sentence in `why` that names it: it is no trace, or has another
 * version. */
bool ms_reader_open(struct ms_reader *reader, const char *path, char *why, size_t why_bytes);
void ms_reader_close(struct ms_reader *reader);

/* Reads only the header of a trace, which must be whole. False, with a sentence in `why` as above.
 */
bool ms_reader_header(const char *path, struct ms_file_header *header, char *why, size_t why_bytes);

/* Reads an extent that was found at opening into reader->extent and checks all of it again. False:
 * it is damaged, or was recycled since. */
bool ms_reader_load(struct ms_reader *reader, struct ms_extent_place *place);

static inline size_t ms_reader_count(const struct ms_buffer *places)
{
    return places->bytes / sizeof(struct ms_extent_place);
}

static inline struct ms_extent_place *ms_reader_place(const struct ms_buffer *places, size_t index)
{
    return (struct ms_extent_place *)places->at + index;
}

/* Reads the newest digest (digest.h) that is whole. False: there is none. */
bool ms_reader_digest(struct ms_reader *reader, struct ms_buffer *digest);

/* An event of the tail by its number, from tail_first to tail_end - 1. Only for events that no
 * window has, after reading all windows (or, if events were lost, that a device's sums lack):
 * another event may have overwritten it. Null: the file is damaged, and its kind, device or owner
 * are out of range. */
const struct ms_timed_event *ms_reader_tail(const struct ms_reader *reader, uint64_t number);

/* Reads the sums of a device's page (a place that ms_reader_load accepted). False: a live writer
 * changes them faster than they can be read. */
bool ms_reader_sums(const struct ms_reader *reader, const struct ms_extent_place *place,
                    struct ms_device_sums *sums);

#endif
