/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes a recording as CSV, plain or packed by gzip. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "report/replay/recording.h"

#define MOST_LINE_BYTES 4096
#define READ_BYTES      (1u << 18)
#define WITH_ADDR       MS_CSV_HEADER ",addr"

enum column { TIME, OP, ID, BYTES, STREAM, SITE, ADDR, COLUMNS };

static const char *const column_names[COLUMNS] = {"time_us", "op",   "id",  "bytes",
                                                  "stream",  "site", "addr"};

#define NEEDS(column) (1u << (column))

/* What a row can say, and which fields it cannot do without. */
enum op {
    ALLOC,
    FREE,
    SEGMENT,
    SEGMENT_FREE,
    BORN,
    DIED,
    RESERVE,
    UNRESERVE,
    MAP,
    UNMAP,
    CACHED,
    FREEZE,
    CHARGE,
    DISCHARGE,
    STEP,
    REFUSED,
    FATAL,
    OPS
};

static const struct {
    const char *name;
    unsigned needs;
} ops[OPS] = {
    [ALLOC] = {"alloc", NEEDS(ID) | NEEDS(BYTES)},
    [FREE] = {"free", NEEDS(ID)},
    [SEGMENT] = {"segment", NEEDS(ID) | NEEDS(BYTES) | NEEDS(ADDR)},
    [SEGMENT_FREE] = {"segment_free", NEEDS(ID)},
    [BORN] = {"born", NEEDS(ID) | NEEDS(BYTES) | NEEDS(ADDR)},
    [DIED] = {"died", NEEDS(ID)},
    [RESERVE] = {"reserve", NEEDS(ID) | NEEDS(BYTES) | NEEDS(ADDR)},
    [UNRESERVE] = {"unreserve", NEEDS(ID)},
    [MAP] = {"map", NEEDS(ID) | NEEDS(BYTES) | NEEDS(ADDR)},
    [UNMAP] = {"unmap", NEEDS(BYTES) | NEEDS(ADDR)},
    [CACHED] = {"cached", NEEDS(BYTES) | NEEDS(ADDR)},
    [FREEZE] = {"freeze", NEEDS(ADDR)},
    [CHARGE] = {"charge", NEEDS(BYTES)},
    [DISCHARGE] = {"discharge", NEEDS(BYTES)},
    [STEP] = {"step", 0},
    [REFUSED] = {"refused", NEEDS(BYTES)},
    [FATAL] = {"fatal", NEEDS(BYTES)},
};

struct row {
    unsigned given; /* bits by column */
    enum op op;
    uint64_t number[COLUMNS]; /* but OP and SITE */
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

/* ---- reading ---- */

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

/* The next field of the line, cut out of it; quotes around it and doubled ones inside are taken
 * away. Null where a quote is not closed, or is followed by more. */
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

static bool parse_op(struct csv *csv, const char *text, struct row *row)
{
    for (int op = 0; op < OPS; op++) {
        if (strcmp(ops[op].name, text) == 0) {
            row->op = (enum op)op;
            return true;
        }
    }
    return fail(csv, "op", ": '%.40s' is none; alloc and free are, and those of docs/replay.md",
                text);
}

static bool parse_field(struct csv *csv, enum column column, const char *text, size_t bytes,
                        struct row *row)
{
    if (column == OP) {
        return parse_op(csv, text, row);
    }
    if (bytes == 0) {
        return true;
    }
    row->given |= NEEDS(column);
    if (column == SITE) {
        row->site = text;
        row->site_bytes = bytes;
        return true;
    }
    return parse_number(text, bytes, &row->number[column]) ||
           fail(csv, column_names[column], ": '%.40s' is no whole number", text);
}

static bool parse_row(struct csv *csv, char *line, struct row *row)
{
    const int columns = csv->has_addr ? COLUMNS : ADDR;
    bool last = false;
    int column = 0;

    for (char *rest = line; !last; column++) {
        size_t bytes;
        const char *field = next_field(&rest, &bytes, &last);

        if (column >= columns) {
            return fail(csv, NULL, "there are more fields than the header's %d", columns);
        }
        if (!field) {
            return fail(csv, column_names[column], ": its quotes are not closed");
        }
        if (!parse_field(csv, (enum column)column, field, bytes, row)) {
            return false;
        }
    }
    if (column < columns) {
        return fail(csv, column_names[column], " is missing: the row ends before it");
    }
    for (column = 0; column < COLUMNS; column++) {
        if (ops[row->op].needs & ~row->given & NEEDS(column)) {
            return fail(csv, column_names[column], " is missing: '%s' needs one",
                        ops[row->op].name);
        }
    }
    return true;
}

static struct ms_complaint put_row(struct csv *csv, const struct row *row)
{
    struct ms_recording *to = csv->recording;
    const uint64_t *number = row->number;
    const uint64_t time_us = csv->time_us;
    const uint32_t site = ms_recording_site(to, row->site, row->site_bytes);

    switch (row->op) {
    case ALLOC:
    case SEGMENT:
        return ms_recording_alloc(to, time_us, number[ID], number[ADDR], number[BYTES],
                                  number[STREAM], site, row->op == SEGMENT);
    case FREE:
    case SEGMENT_FREE:
        return ms_recording_release(to, time_us, number[ID], number[STREAM]);
    case BORN:
        return ms_recording_allocated(to, time_us, number[ID], number[ADDR], number[BYTES], site,
                                      0);
    case DIED:
        return ms_recording_freed(to, time_us, number[ID]);
    case RESERVE:
        return ms_recording_reserve(to, time_us, number[ID], number[ADDR], number[BYTES]);
    case UNRESERVE:
        return ms_recording_unreserve(to, time_us, number[ID]);
    case MAP:
        return ms_recording_map(to, time_us, number[ID], number[ADDR], number[BYTES]);
    case UNMAP:
        return ms_recording_unmap(to, time_us, number[ADDR], number[BYTES]);
    case CACHED:
        return ms_recording_cached(to, time_us, number[ADDR], number[BYTES]);
    case FREEZE:
        return ms_recording_freeze(to, time_us, number[ADDR]);
    case CHARGE:
        return ms_recording_charge(to, time_us, MS_OPERATION_CHARGE, number[BYTES]);
    case DISCHARGE:
        return ms_recording_charge(to, time_us, MS_OPERATION_DISCHARGE, number[BYTES]);
    case REFUSED:
    case FATAL:
        return ms_recording_refused(to, time_us,
                                    row->op == FATAL ? MS_OPERATION_FATAL : MS_OPERATION_REFUSED,
                                    number[BYTES], number[STREAM], site);
    default:
        return ms_recording_step(to, time_us);
    }
}

static bool take_row(struct csv *csv, char *line)
{
    struct row row = {0};

    if (!parse_row(csv, line, &row)) {
        return false;
    }
    if (row.given & NEEDS(TIME)) {
        csv->time_us = row.number[TIME];
    }

    const struct ms_complaint complaint = put_row(csv, &row);

    return !complaint.field || fail(csv, complaint.field, " %s", complaint.problem);
}

/* A packed file may end in the middle, and what is left of its last line be read as a line. */
static bool is_cut(const struct csv *csv)
{
    int error;

    (void)gzerror(csv->file, &error);
    return error == Z_BUF_ERROR;
}

/* The next line without its end; null at the end of the file and where it cannot be read. */
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
    csv->has_addr = strcmp(line, WITH_ADDR) == 0;
    if (!csv->has_addr && strcmp(line, MS_CSV_HEADER) != 0) {
        return fail(csv, NULL, "the header is not %s, with or without ,addr", MS_CSV_HEADER);
    }
    while (next_line(csv, line, &good)) {
        if (line[0] != '\0' && !take_row(csv, line)) {
            return false;
        }
    }
    return good;
}

bool ms_recording_read_csv(struct ms_recording *recording, const char *path, char *why,
                           size_t why_bytes)
{
    const bool standard = strcmp(path, "-") == 0;
    struct csv csv = {.recording = recording,
                      .name = standard ? "standard input" : path,
                      .why = why,
                      .why_bytes = why_bytes};
    const int copy = standard ? dup(STDIN_FILENO) : -1;
    bool read;

    csv.file = standard ? gzdopen(copy, "rb") : gzopen(path, "rbe");
    if (!csv.file) {
        (void)snprintf(why, why_bytes, "%s: cannot be opened: %s", csv.name, strerror(errno));
        if (copy >= 0) {
            (void)close(copy);
        }
        return false;
    }
    (void)gzbuffer(csv.file, READ_BYTES);
    read = read_lines(&csv);
    (void)gzclose(csv.file);
    if (read && !ms_recording_end(recording)) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", csv.name);
        read = false;
    }
    return read;
}

/* ---- writing ---- */

#define TIME_STEP_US  UINT64_C(10000)
#define GRANULE_BYTES (UINT64_C(2) << 20)
#define WORD_BITS     64u

/* Numbers and addresses that are free, the lowest first: what repeats in the run then repeats in
 * the text. */
struct small_ids {
    struct ms_buffer words; /* uint64_t: a bit for each id that is taken */
    size_t first_free;      /* no word before it has a free bit */
};

struct writer {
    const struct ms_recording *recording;
    struct ms_buffer *out;
    struct small_ids ids;
    uint32_t *id_of;        /* by object */
    uint64_t *addr_of;      /* by arena */
    bool *placed;           /* by arena: it has its address now */
    struct ms_buffer taken; /* uint32_t: arenas that have an address, by address */
    uint64_t time_us;
    bool failed;
};

static uint32_t take_id(struct writer *writer)
{
    struct small_ids *ids = &writer->ids;

    for (size_t at = ids->first_free;; at++) {
        if (at == ids->words.bytes / sizeof(uint64_t) &&
            !ms_buffer_extend(&ids->words, sizeof(uint64_t))) {
            writer->failed = true;
            return 0;
        }

        uint64_t *word = (uint64_t *)ids->words.at + at;

        ids->first_free = at;
        if (*word != UINT64_MAX) {
            const unsigned bit = (unsigned)__builtin_ctzll(~*word);

            *word |= UINT64_C(1) << bit;
            return (uint32_t)(at * WORD_BITS + bit);
        }
    }
}

static void give_id(struct writer *writer, uint32_t id)
{
    const size_t at = id / WORD_BITS;

    ((uint64_t *)writer->ids.words.at)[at] &= ~(UINT64_C(1) << (id % WORD_BITS));
    writer->ids.first_free = at < writer->ids.first_free ? at : writer->ids.first_free;
}

static uint64_t whole_granules(uint64_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

/* The lowest gap that is long enough; address 0 stands for none. */
static void place_arena(struct writer *writer, uint32_t index)
{
    const size_t count = writer->taken.bytes / sizeof(uint32_t);
    const uint64_t bytes = whole_granules(ms_recording_arena(writer->recording, index)->bytes);
    uint64_t addr = GRANULE_BYTES;
    size_t at = 0;

    if (writer->placed[index]) {
        return;
    }
    for (; at < count; at++) {
        const uint32_t other = ((const uint32_t *)writer->taken.at)[at];

        if (writer->addr_of[other] - addr >= bytes) {
            break;
        }
        addr = writer->addr_of[other] +
               whole_granules(ms_recording_arena(writer->recording, other)->bytes);
    }
    if (!ms_buffer_extend(&writer->taken, sizeof(uint32_t))) {
        writer->failed = true;
        return;
    }

    uint32_t *taken = (uint32_t *)writer->taken.at;

    memmove(taken + at + 1, taken + at, (count - at) * sizeof(*taken));
    taken[at] = index;
    writer->addr_of[index] = addr;
    writer->placed[index] = true;
}

static void free_arena(struct writer *writer, uint32_t index)
{
    uint32_t *taken = (uint32_t *)writer->taken.at;
    const size_t count = writer->taken.bytes / sizeof(*taken);

    for (size_t at = 0; at < count; at++) {
        if (taken[at] == index) {
            memmove(taken + at, taken + at + 1, (count - at - 1) * sizeof(*taken));
            writer->taken.bytes -= sizeof(*taken);
            return;
        }
    }
}

static enum op op_of(const struct ms_operation *operation)
{
    const bool arena = operation->arena != MS_RECORDED_NONE;

    switch (operation->kind) {
    case MS_OPERATION_ALLOC:
        return arena ? SEGMENT : ALLOC;
    case MS_OPERATION_FREE:
        return arena ? SEGMENT_FREE : FREE;
    case MS_OPERATION_TENSOR_ALLOC:
        return BORN;
    case MS_OPERATION_TENSOR_FREE:
        return DIED;
    case MS_OPERATION_RESERVE:
        return RESERVE;
    case MS_OPERATION_UNRESERVE:
        return UNRESERVE;
    case MS_OPERATION_MAP:
        return MAP;
    case MS_OPERATION_UNMAP:
        return UNMAP;
    case MS_OPERATION_CACHED:
        return CACHED;
    case MS_OPERATION_FREEZE:
        return FREEZE;
    case MS_OPERATION_CHARGE:
        return CHARGE;
    case MS_OPERATION_DISCHARGE:
        return DISCHARGE;
    case MS_OPERATION_REFUSED:
        return REFUSED;
    case MS_OPERATION_FATAL:
        return FATAL;
    default:
        return STEP;
    }
}

/* A name may hold commas and quotes, and be anybody's. */
static void add_site(struct writer *writer, uint32_t site)
{
    const char *name = ms_recording_site_name(writer->recording, site);
    struct ms_buffer plain = {0};

    if (!name) {
        if (site != 0) {
            ms_buffer_format(writer->out, "%" PRIu32, site);
        }
        return;
    }
    if (!strpbrk(name, ",\"")) {
        ms_buffer_add_plain(writer->out, name);
        return;
    }
    ms_buffer_add_plain(&plain, name);
    ms_buffer_add(writer->out, "\"");
    for (size_t i = 0; i < plain.bytes; i++) {
        const bool quote = plain.at[i] == '"';

        ms_buffer_append(writer->out, quote ? "\"\"" : plain.at + i, quote ? 2 : 1);
    }
    ms_buffer_add(writer->out, "\"");
    writer->failed |= plain.failed;
    ms_buffer_free(&plain);
}

static void add_number(struct ms_buffer *out, bool wanted, uint64_t number)
{
    if (wanted) {
        ms_buffer_format(out, "%" PRIu64, number);
    }
    ms_buffer_add(out, ",");
}

static void add_row(struct writer *writer, const struct ms_operation *operation)
{
    const enum op op = op_of(operation);
    const unsigned needs = ops[op].needs;
    const bool begins = op == ALLOC || op == SEGMENT || op == BORN;
    const bool later = operation->time_us >= writer->time_us + TIME_STEP_US;
    struct ms_buffer *out = writer->out;

    if (operation->arena != MS_RECORDED_NONE && (op == SEGMENT || op == RESERVE)) {
        place_arena(writer, operation->arena);
    }
    if (begins) {
        writer->id_of[operation->object] = take_id(writer);
    }
    if (writer->failed) {
        return;
    }
    writer->time_us = later ? operation->time_us : writer->time_us;
    add_number(out, later || out->bytes == sizeof(WITH_ADDR), operation->time_us);
    ms_buffer_format(out, "%s,", ops[op].name);
    add_number(out, needs & NEEDS(ID),
               op == RESERVE || op == UNRESERVE || op == MAP
                   ? operation->arena
                   : writer->id_of[begins || op == FREE || op == SEGMENT_FREE || op == DIED
                                       ? operation->object
                                       : 0]);
    add_number(out, needs & NEEDS(BYTES), operation->bytes);
    add_number(out, operation->stream != 0, operation->stream);
    if (begins || op == REFUSED || op == FATAL) {
        add_site(writer, operation->site);
    }
    ms_buffer_add(out, ",");
    if (needs & NEEDS(ADDR)) {
        const bool whole = op == SEGMENT || op == RESERVE || op == FREEZE;

        ms_buffer_format(out, "%" PRIu64,
                         writer->addr_of[operation->arena] + (whole ? 0 : operation->offset));
    }
    ms_buffer_add(out, "\n");
    if (op == FREE || op == SEGMENT_FREE || op == DIED) {
        give_id(writer, writer->id_of[operation->object]);
    }
    if (op == SEGMENT_FREE || op == UNRESERVE) {
        free_arena(writer, operation->arena);
    }
}

void ms_recording_format_csv(const struct ms_recording *recording, struct ms_buffer *out)
{
    const size_t arenas = ms_recording_arenas(recording) + 1;
    struct writer writer = {.recording = recording, .out = out};

    writer.id_of = calloc((size_t)recording->objects + 1, sizeof(*writer.id_of));
    writer.addr_of = calloc(arenas, sizeof(*writer.addr_of));
    writer.placed = calloc(arenas, sizeof(*writer.placed));
    writer.failed = !writer.id_of || !writer.addr_of || !writer.placed;
    ms_buffer_add(out, WITH_ADDR "\n");
    for (size_t i = 0; i < ms_recording_count(recording) && !writer.failed; i++) {
        add_row(&writer, ms_recording_at(recording, i));
    }
    out->failed |= writer.failed;
    free(writer.id_of);
    free(writer.addr_of);
    free(writer.placed);
    ms_buffer_free(&writer.ids.words);
    ms_buffer_free(&writer.taken);
}
