/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a recording as CSV. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/replay/recording_csv.h"

#define TIME_STEP_US  UINT64_C(10000)
#define GRANULE_BYTES (UINT64_C(2) << 20)
#define WORD_BITS     64u

/* Free numbers and addresses, the lowest first: repetitions in the run then repeat in the text. */
struct small_ids {
    struct ms_buffer words; /* uint64_t: a bit for each id in use */
    size_t first_free;      /* no word before it has a free bit */
};

struct csv_writer {
    const struct ms_recording *recording;
    struct ms_buffer *out;
    struct small_ids ids;
    uint32_t *id_of;        /* by object */
    uint64_t *addr_of;      /* by arena */
    bool *placed;           /* by arena: it has an address now */
    struct ms_buffer taken; /* uint32_t: arenas that have an address, by address */
    uint64_t time_us;
    bool failed;
};

static uint32_t take_id(struct csv_writer *writer)
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

static void give_id(struct csv_writer *writer, uint32_t id)
{
    const size_t at = id / WORD_BITS;

    ((uint64_t *)writer->ids.words.at)[at] &= ~(UINT64_C(1) << (id % WORD_BITS));
    writer->ids.first_free = at < writer->ids.first_free ? at : writer->ids.first_free;
}

static uint64_t whole_granules(uint64_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

/* The lowest gap that is large enough; address 0 means none. */
static void place_arena(struct csv_writer *writer, uint32_t index)
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

static void free_arena(struct csv_writer *writer, uint32_t index)
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

static enum ms_csv_op op_of(const struct ms_operation *operation)
{
    const bool arena = operation->arena != MS_RECORDED_NONE;

    switch (operation->kind) {
    case MS_OPERATION_ALLOC:
        return arena ? MS_CSV_SEGMENT : MS_CSV_ALLOC;
    case MS_OPERATION_FREE:
        return arena ? MS_CSV_SEGMENT_FREE : MS_CSV_FREE;
    case MS_OPERATION_TENSOR_ALLOC:
        return MS_CSV_TENSOR_ALLOC;
    case MS_OPERATION_TENSOR_FREE:
        return MS_CSV_TENSOR_FREE;
    case MS_OPERATION_RESERVE:
        return MS_CSV_RESERVE;
    case MS_OPERATION_UNRESERVE:
        return MS_CSV_UNRESERVE;
    case MS_OPERATION_MAP:
        return MS_CSV_MAP;
    case MS_OPERATION_UNMAP:
        return MS_CSV_UNMAP;
    case MS_OPERATION_CACHED:
        return MS_CSV_CACHED;
    case MS_OPERATION_FREEZE:
        return MS_CSV_FREEZE;
    case MS_OPERATION_CHARGE:
        return MS_CSV_CHARGE;
    case MS_OPERATION_DISCHARGE:
        return MS_CSV_DISCHARGE;
    case MS_OPERATION_REFUSED:
        return MS_CSV_REFUSED;
    case MS_OPERATION_FATAL:
        return MS_CSV_FATAL;
    default:
        return MS_CSV_STEP;
    }
}

/* A name may hold commas and quotes, and come from a stranger. */
static void add_site(struct csv_writer *writer, uint32_t site)
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

static void add_row(struct csv_writer *writer, const struct ms_operation *operation)
{
    const enum ms_csv_op op = op_of(operation);
    const unsigned needs = ms_csv_ops[op].needs;
    const bool begins = op == MS_CSV_ALLOC || op == MS_CSV_SEGMENT || op == MS_CSV_TENSOR_ALLOC;
    const bool later = operation->time_us >= writer->time_us + TIME_STEP_US;
    struct ms_buffer *out = writer->out;

    if (operation->arena != MS_RECORDED_NONE && (op == MS_CSV_SEGMENT || op == MS_CSV_RESERVE)) {
        place_arena(writer, operation->arena);
    }
    if (begins) {
        writer->id_of[operation->object] = take_id(writer);
    }
    if (writer->failed) {
        return;
    }
    writer->time_us = later ? operation->time_us : writer->time_us;
    add_number(out, later || out->bytes == sizeof(MS_CSV_HEADER_ADDR), operation->time_us);
    ms_buffer_format(out, "%s,", ms_csv_ops[op].name);
    add_number(out, needs & MS_CSV_BIT(MS_CSV_ID),
               op == MS_CSV_RESERVE || op == MS_CSV_UNRESERVE || op == MS_CSV_MAP
                   ? operation->arena
                   : writer->id_of[begins || op == MS_CSV_FREE || op == MS_CSV_SEGMENT_FREE ||
                                           op == MS_CSV_TENSOR_FREE
                                       ? operation->object
                                       : 0]);
    add_number(out, needs & MS_CSV_BIT(MS_CSV_BYTES), operation->bytes);
    add_number(out, operation->stream != 0, operation->stream);
    if (begins || op == MS_CSV_REFUSED || op == MS_CSV_FATAL) {
        add_site(writer, operation->site);
    }
    ms_buffer_add(out, ",");
    if (needs & MS_CSV_BIT(MS_CSV_ADDR)) {
        const bool whole = op == MS_CSV_SEGMENT || op == MS_CSV_RESERVE || op == MS_CSV_FREEZE;

        ms_buffer_format(out, "%" PRIu64,
                         writer->addr_of[operation->arena] + (whole ? 0 : operation->offset));
    }
    ms_buffer_add(out, "\n");
    if (op == MS_CSV_FREE || op == MS_CSV_SEGMENT_FREE || op == MS_CSV_TENSOR_FREE) {
        give_id(writer, writer->id_of[operation->object]);
    }
    if (op == MS_CSV_SEGMENT_FREE || op == MS_CSV_UNRESERVE) {
        free_arena(writer, operation->arena);
    }
}

void ms_recording_format_csv(const struct ms_recording *recording, struct ms_buffer *out)
{
    const size_t arenas = ms_recording_arenas(recording) + 1;
    struct csv_writer writer = {.recording = recording, .out = out};

    writer.id_of = calloc((size_t)recording->objects + 1, sizeof(*writer.id_of));
    writer.addr_of = calloc(arenas, sizeof(*writer.addr_of));
    writer.placed = calloc(arenas, sizeof(*writer.placed));
    writer.failed = !writer.id_of || !writer.addr_of || !writer.placed;
    ms_buffer_add(out, MS_CSV_HEADER_ADDR "\n");
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
