/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a recording from CSV, plain or packed by gzip. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "report/replay/recording_csv.h"

#define MOST_LINE_BYTES 4096
#define READ_BYTES      (1u << 18)

struct csv_row {
    unsigned given; /* bits by column */
    enum ms_csv_op op;
    uint64_t number[MS_CSV_COLUMNS]; /* all columns but MS_CSV_OP and MS_CSV_SITE */
    const char *site;
    size_t site_bytes;
};

struct csv {
    struct ms_recording *recording;
    const char *name; /* of the file, for messages */
    gzFile file;
    uint64_t line;
    uint64_t time_us; /* of the row before */
    bool has_addr;
    char *why;
    size_t why_bytes;
};

__attribute__((format(printf, 3, 4))) static bool fail(struct csv *csv, const char *field,
                                                       const char *format, ...)
{
    char problem[256];
    va_list values;

    va_start(values, format);
    (void)vsnprintf(problem, sizeof(problem), format, values);
    va_end(values);
    (void)snprintf(csv->why, csv->why_bytes, "%s:%" PRIu64 ": %s%s", csv->name, csv->line,
                   field ? field : "", problem);
    return false;
}

/* Cuts the next field off the line; removes quotes around it and doubles inside. Null: a quote is
 * not closed, or more follows it. */
static char *next_field(char **rest, size_t *bytes, bool *last)
{
    char *field = *rest, *from = field, *to = field;
    bool quoted = *from == '"';

    from += quoted;
    while (*from != '\0' && (quoted || *from != ',')) {
        if (quoted && *from == '"') {
            from++;
            if (*from != '"') {
                quoted = false;
                break;
            }
        }
        *to++ = *from++;
    }
    if (quoted || (*from != ',' && *from != '\0')) {
        return NULL;
    }
    *last = *from == '\0';
    *rest = *last ? from : from + 1;
    *bytes = (size_t)(to - field);
    *to = '\0';
    return field;
}

static bool parse_number(const char *text, size_t bytes, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++) {
        const unsigned digit = (unsigned)(unsigned char)text[i] - '0';

        if (digit > 9 || value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return bytes > 0;
}

static bool parse_op(struct csv *csv, const char *text, struct csv_row *row)
{
    for (int op = 0; op < MS_CSV_OPS; op++) {
        if (strcmp(ms_csv_ops[op].name, text) == 0) {
            row->op = (enum ms_csv_op)op;
            return true;
        }
    }
    return fail(csv, "op", ": '%.40s' is none; alloc and free are, and those of docs/replay.md",
                text);
}

static bool parse_field(struct csv *csv, enum ms_csv_column column, const char *text, size_t bytes,
                        struct csv_row *row)
{
    if (column == MS_CSV_OP) {
        return parse_op(csv, text, row);
    }
    if (bytes == 0) {
        return true;
    }
    row->given |= MS_CSV_BIT(column);
    if (column == MS_CSV_SITE) {
        row->site = text;
        row->site_bytes = bytes;
        return true;
    }
    return parse_number(text, bytes, &row->number[column]) ||
           fail(csv, ms_csv_column_names[column], ": '%.40s' is no whole number", text);
}

static bool parse_row(struct csv *csv, char *line, struct csv_row *row)
{
    const int columns = csv->has_addr ? MS_CSV_COLUMNS : MS_CSV_ADDR;
    bool last = false;
    int column = 0;

    for (char *rest = line; !last; column++) {
        size_t bytes;
        const char *field = next_field(&rest, &bytes, &last);

        if (column >= columns) {
            return fail(csv, NULL, "there are more fields than the header's %d", columns);
        }
        if (!field) {
            return fail(csv, ms_csv_column_names[column], ": its quotes are not closed");
        }
        if (!parse_field(csv, (enum ms_csv_column)column, field, bytes, row)) {
            return false;
        }
    }
    if (column < columns) {
        return fail(csv, ms_csv_column_names[column], " is missing: the row ends before it");
    }
    for (column = 0; column < MS_CSV_COLUMNS; column++) {
        if (ms_csv_ops[row->op].needs & ~row->given & MS_CSV_BIT(column)) {
            return fail(csv, ms_csv_column_names[column], " is missing: '%s' needs one",
                        ms_csv_ops[row->op].name);
        }
    }
    return true;
}

static struct ms_complaint put_row(struct csv *csv, const struct csv_row *row)
{
    struct ms_recording *to = csv->recording;
    const uint64_t *number = row->number;
    const uint64_t time_us = csv->time_us;
    const uint32_t site = ms_recording_site(to, row->site, row->site_bytes);

    switch (row->op) {
    case MS_CSV_ALLOC:
    case MS_CSV_SEGMENT:
        return ms_recording_alloc(to, time_us, number[MS_CSV_ID], number[MS_CSV_ADDR],
                                  number[MS_CSV_BYTES], number[MS_CSV_STREAM], site,
                                  row->op == MS_CSV_SEGMENT);
    case MS_CSV_FREE:
    case MS_CSV_SEGMENT_FREE:
        return ms_recording_release(to, time_us, number[MS_CSV_ID], number[MS_CSV_STREAM]);
    case MS_CSV_TENSOR_ALLOC:
        return ms_recording_allocated(to, time_us, number[MS_CSV_ID], number[MS_CSV_ADDR],
                                      number[MS_CSV_BYTES], site, 0);
    case MS_CSV_TENSOR_FREE:
        return ms_recording_freed(to, time_us, number[MS_CSV_ID]);
    case MS_CSV_RESERVE:
        return ms_recording_reserve(to, time_us, number[MS_CSV_ID], number[MS_CSV_ADDR],
                                    number[MS_CSV_BYTES]);
    case MS_CSV_UNRESERVE:
        return ms_recording_unreserve(to, time_us, number[MS_CSV_ID]);
    case MS_CSV_MAP:
        return ms_recording_map(to, time_us, number[MS_CSV_ID], number[MS_CSV_ADDR],
                                number[MS_CSV_BYTES]);
    case MS_CSV_UNMAP:
        return ms_recording_unmap(to, time_us, number[MS_CSV_ADDR], number[MS_CSV_BYTES]);
    case MS_CSV_CACHED:
        return ms_recording_cached(to, time_us, number[MS_CSV_ADDR], number[MS_CSV_BYTES]);
    case MS_CSV_FREEZE:
        return ms_recording_freeze(to, time_us, number[MS_CSV_ADDR]);
    case MS_CSV_CHARGE:
        return ms_recording_charge(to, time_us, MS_OPERATION_CHARGE, number[MS_CSV_BYTES]);
    case MS_CSV_DISCHARGE:
        return ms_recording_charge(to, time_us, MS_OPERATION_DISCHARGE, number[MS_CSV_BYTES]);
    case MS_CSV_REFUSED:
    case MS_CSV_FATAL:
        return ms_recording_refused(
            to, time_us, row->op == MS_CSV_FATAL ? MS_OPERATION_FATAL : MS_OPERATION_REFUSED,
            number[MS_CSV_BYTES], number[MS_CSV_STREAM], site);
    default:
        return ms_recording_step(to, time_us);
    }
}

static bool take_row(struct csv *csv, char *line)
{
    struct csv_row row = {0};

    if (!parse_row(csv, line, &row)) {
        return false;
    }
    if (row.given & MS_CSV_BIT(MS_CSV_TIME)) {
        csv->time_us = row.number[MS_CSV_TIME];
    }

    const struct ms_complaint complaint = put_row(csv, &row);

    return !complaint.field || fail(csv, complaint.field, " %s", complaint.problem);
}

/* A packed file may end anywhere, so its last line may be incomplete. */
static bool is_cut(const struct csv *csv)
{
    int error;

    (void)gzerror(csv->file, &error);
    return error == Z_BUF_ERROR;
}

/* The next line without its end; null: the file ends, or cannot be read. */
static char *next_line(struct csv *csv, char *line, bool *good)
{
    size_t length;

    *good = true;
    csv->line++;
    if (!gzgets(csv->file, line, MOST_LINE_BYTES)) {
        int error;
        const char *message = gzerror(csv->file, &error);

        if (error != Z_OK && error != Z_STREAM_END) {
            *good =
                fail(csv, NULL, "cannot be read: %s", error == Z_ERRNO ? strerror(errno) : message);
        }
        return NULL;
    }
    length = strlen(line);
    if (is_cut(csv)) {
        *good = fail(csv, NULL, "the packed file ends too early: it was cut");
        return NULL;
    }
    if (length == MOST_LINE_BYTES - 1 && line[length - 1] != '\n') {
        *good = fail(csv, NULL, "the line is longer than %d bytes", MOST_LINE_BYTES - 2);
        return NULL;
    }
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
        line[--length] = '\0';
    }
    return line;
}

static bool read_lines(struct csv *csv)
{
    char line[MOST_LINE_BYTES];
    bool good;

    if (!next_line(csv, line, &good)) {
        return good && fail(csv, NULL, "the file is empty; its header is %s", MS_CSV_HEADER);
    }
    csv->has_addr = strcmp(line, MS_CSV_HEADER_ADDR) == 0;
    if (!csv->has_addr && strcmp(line, MS_CSV_HEADER) != 0) {
        return fail(csv, NULL,
                    "the header is not %s, with or without ,addr; nor is it a trace of memshim's "
                    "or a snapshot of PyTorch's",
                    MS_CSV_HEADER);
    }
    while (next_line(csv, line, &good)) {
        if (line[0] != '\0' && !take_row(csv, line)) {
            return false;
        }
    }
    return good;
}

bool ms_recording_read_csv_from(struct ms_recording *recording, int fd, const char *name, char *why,
                                size_t why_bytes)
{
    struct csv csv = {.recording = recording, .name = name, .why = why, .why_bytes = why_bytes};
    bool read;

    csv.file = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (!csv.file) {
        (void)snprintf(why, why_bytes, "%s: cannot be opened: %s", name, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return false;
    }
    (void)gzbuffer(csv.file, READ_BYTES);
    read = read_lines(&csv);
    (void)gzclose(csv.file);
    if (read && !ms_recording_end(recording)) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", name);
        read = false;
    }
    return read;
}

bool ms_recording_read_csv(struct ms_recording *recording, const char *path, char *why,
                           size_t why_bytes)
{
    const bool standard = strcmp(path, "-") == 0;
    const int fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);

    return ms_recording_read_csv_from(recording, fd, standard ? "standard input" : path, why,
                                      why_bytes);
}
