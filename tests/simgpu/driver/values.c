/* SPDX-License-Identifier: Apache-2.0 */
/* Which device memory contains what a host wrote, and which would contain only results of kernels.
 * See values.h. */
#include "values.h"

#include "../simgpu.h"

#include "device.h"
#include "entry.h"
#include "settings.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets of addresses ----------------------------------------------------------------------- */

struct span {
    uint64_t begin, end;
};

/* Disjoint, sorted by address. */
struct spans {
    struct span *at;
    size_t count, room;
};

static struct spans written; /* by a host, or received from another rank's such memory, or computed
                                from such memory */
static struct spans filled;  /* by a memset, or copied from such memory: the program may read what
                                kernels then add to it */
static struct spans wrong;   /* where a host reads whether something went wrong */
static struct spans fine;    /* where a host reads whether all is well */

/* The index of the first that ends after `begin`. */
static size_t find(const struct spans *spans, uint64_t begin)
{
    size_t low = 0, high = spans->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (spans->at[middle].end > begin) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Replaces those in [first, last) by `count` spans. False: no memory. */
static bool replace(struct spans *spans, size_t first, size_t last, const struct span *by,
                    size_t count)
{
    size_t wanted = spans->count - (last - first) + count;
    if (wanted > spans->room) {
        size_t room = wanted * 2 + 16;
        struct span *longer = realloc(spans->at, room * sizeof *longer);
        if (!longer) {
            return false;
        }
        spans->at = longer;
        spans->room = room;
    }
    memmove(spans->at + first + count, spans->at + last, (spans->count - last) * sizeof *spans->at);
    for (size_t i = 0; i < count; i++) {
        spans->at[first + i] = by[i];
    }
    spans->count = wanted;
    return true;
}

static void add(struct spans *spans, uint64_t begin, uint64_t end)
{
    size_t first = find(spans, begin), last = first;
    struct span whole = {begin, end};
    while (last < spans->count && spans->at[last].begin < end) {
        const struct span *old = &spans->at[last++];
        whole.begin = old->begin < whole.begin ? old->begin : whole.begin;
        whole.end = old->end > whole.end ? old->end : whole.end;
    }
    replace(spans, first, last, &whole, 1);
}

static void cut(struct spans *spans, uint64_t begin, uint64_t end)
{
    size_t first = find(spans, begin), last = first, count = 0;
    struct span rest[2];
    while (last < spans->count && spans->at[last].begin < end) {
        last++;
    }
    if (first == last) {
        return;
    }
    if (spans->at[first].begin < begin) {
        rest[count++] = (struct span){spans->at[first].begin, begin};
    }
    if (spans->at[last - 1].end > end) {
        rest[count++] = (struct span){end, spans->at[last - 1].end};
    }
    replace(spans, first, last, rest, count);
}

/* Neighbouring spans may touch each other. */
static bool holds(const struct spans *spans, uint64_t begin, uint64_t end)
{
    size_t i = find(spans, begin);
    while (i < spans->count && spans->at[i].begin <= begin && begin < end) {
        begin = spans->at[i++].end;
    }
    return begin >= end;
}

static void note(uint64_t at, uint64_t bytes, bool by_host)
{
    if (sim_settings.values != SIM_VALUES_MEMORY && bytes) {
        (by_host ? add : cut)(&written, at, at + bytes);
        cut(&filled, at, at + bytes);
    }
}

void simgpu_forget(uint64_t at, uint64_t bytes)
{
    sim_lock();
    note(at, bytes, false);
    cut(&wrong, at, at + bytes);
    cut(&fine, at, at + bytes);
    sim_unlock();
}

bool sim_values_known(uint64_t at, size_t bytes)
{
    return holds(&written, at, at + bytes);
}

int simgpu_is_known(uint64_t at, uint64_t bytes)
{
    sim_lock();
    bool is = sim_values_known(at, bytes);
    sim_unlock();
    return is;
}

void sim_values_stored(uint64_t at, size_t bytes, bool known)
{
    note(at, bytes, known);
}

void simgpu_note_carried(uint64_t at, uint64_t bytes, uint64_t from, uint64_t from_bytes)
{
    sim_lock();
    note(at, bytes, !from || holds(&written, from, from + from_bytes));
    sim_unlock();
}

void simgpu_note_flag(uint64_t at, uint64_t bytes, enum simgpu_flag kind)
{
    sim_lock();
    if (sim_settings.values != SIM_VALUES_MEMORY && bytes && kind != SIMGPU_NO_FLAG) {
        add(kind == SIMGPU_FLAG_FINE ? &fine : &wrong, at, at + bytes);
    }
    sim_unlock();
}

static enum simgpu_flag flag_of(uint64_t at, uint64_t bytes)
{
    return bytes == 0                      ? SIMGPU_NO_FLAG
           : holds(&wrong, at, at + bytes) ? SIMGPU_FLAG_WRONG
           : holds(&fine, at, at + bytes)  ? SIMGPU_FLAG_FINE
                                           : SIMGPU_NO_FLAG;
}

enum simgpu_flag simgpu_flag_of(uint64_t at, uint64_t bytes)
{
    sim_lock();
    enum simgpu_flag kind = flag_of(at, bytes);
    sim_unlock();
    return kind;
}

/* ---- who reads ------------------------------------------------------------------------------- */

static _Thread_local struct simgpu_reader reader;

struct simgpu_reader simgpu_read_as(struct simgpu_reader now)
{
    struct simgpu_reader before = reader;
    reader = now;
    return before;
}

bool sim_values_come_late(bool waits)
{
    return sim_settings.values != SIM_VALUES_MEMORY &&
           (waits || reader.reader != SIMGPU_READER_COPY);
}

typedef void tell_t(int device, const void *at, size_t bytes, unsigned reader, unsigned type);

/* Calls memshim's function, if it is preloaded. That captures the caller's stack, which may need
 * the loader's lock, so it is called without sim_lock. */
static void tell(const struct sim_device *device, const void *at, size_t bytes)
{
    unsigned how =
        flag_of((uint64_t)at, bytes) != SIMGPU_NO_FLAG ? SIMGPU_READER_FLAG : reader.reader;
    static tell_t *told;
    static bool known;
    if (!known) {
        told = (tell_t *)dlsym(RTLD_DEFAULT, "memshim_value_read");
        known = true;
    }
    if (told) {
        sim_unlock();
        told(device->index, at, bytes, how, reader.type);
        sim_lock();
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

#define READERS 4u
#define TYPES   64u

/* Each reader and type has random numbers of its own. So ranks that read alike get the same values,
 * even if one of them reads something else as well. */
static uint64_t draws[READERS][TYPES];

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static struct sim_answer answer_to(uint64_t at, size_t bytes)
{
    struct sim_answer answer = {.kind = SIM_ANSWER_ZEROS, .type = reader.type, .most = reader.most};
    if (sim_settings.values == SIM_VALUES_ZEROS && holds(&filled, at, at + bytes)) {
        answer.kind = SIM_ANSWER_MEMORY;
    }
    if (sim_settings.values != SIM_VALUES_MEMORY && flag_of(at, bytes) == SIMGPU_FLAG_FINE) {
        answer.kind = SIM_ANSWER_TRUE;
    }
    if (sim_settings.values == SIM_VALUES_RANDOM && flag_of(at, bytes) == SIMGPU_NO_FLAG) {
        answer.kind = SIM_ANSWER_RANDOM;
        answer.seed = mix((sim_settings.seed << 40) + ((uint64_t)reader.reader << 32) +
                          ((uint64_t)reader.type << 24) +
                          draws[reader.reader % READERS][reader.type % TYPES]++);
    }
    return answer;
}

/* In (0, 1), and far enough from both ends that every float type can distinguish it from them. */
static double fraction(uint64_t draw)
{
    return 0.0625 + (double)(draw >> 12) / (double)(1ull << 52) * 0.875;
}

static void store_float(double value, unsigned type, void *to)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (type == SIMGPU_FLOAT64) {
        memcpy(to, &value, sizeof value);
    } else if (type == SIMGPU_FLOAT32) {
        memcpy(to, &single, sizeof single);
    } else {
        /* Between 2^-4 and 1 only digits are lost: half has a smaller exponent offset. */
        uint16_t half = (uint16_t)(type == SIMGPU_BFLOAT16
                                       ? bits >> 16
                                       : (((bits >> 23) - 127 + 15) << 10) | (bits >> 13 & 0x3ffu));
        memcpy(to, &half, sizeof half);
    }
}

static size_t element_bytes(unsigned type)
{
    switch (type) {
    case SIMGPU_BOOL:
    case SIMGPU_UINT8:
    case SIMGPU_INT8:
        return 1;
    case SIMGPU_INT16:
    case SIMGPU_FLOAT16:
    case SIMGPU_BFLOAT16:
        return 2;
    case SIMGPU_INT32:
    case SIMGPU_FLOAT32:
        return 4;
    case SIMGPU_INT64:
    case SIMGPU_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

#define SMALL_NUMBERS 8 /* for whole numbers of unknown range */

static void store(const struct sim_answer *answer, uint64_t draw, size_t bytes, void *to)
{
    switch (answer->type) {
    case SIMGPU_FLOAT16:
    case SIMGPU_BFLOAT16:
    case SIMGPU_FLOAT32:
    case SIMGPU_FLOAT64:
        store_float(fraction(draw), answer->type, to);
        break;
    default: {
        uint64_t below = answer->type == SIMGPU_BOOL ? 2 : SMALL_NUMBERS;
        below = answer->most && answer->most < UINT64_MAX ? answer->most + 1 : below;
        uint64_t value = draw % below;
        memcpy(to, &value, bytes);
    }
    }
}

void sim_values_answer(const struct sim_answer *answer, uint64_t row, void *to, size_t bytes)
{
    size_t each = element_bytes(answer->type);
    memset(to, answer->kind == SIM_ANSWER_TRUE, bytes);
    for (size_t i = 0; each && answer->kind == SIM_ANSWER_RANDOM && (i + 1) * each <= bytes; i++) {
        store(answer, mix(answer->seed + (row << 32) + i), each, (char *)to + i * each);
    }
}

/* ---- copies and memsets ---------------------------------------------------------------------- */

static bool is_host(struct sim_location location)
{
    return location.place == SIM_PLACE_PAGEABLE || location.place == SIM_PLACE_HOST;
}

/* Objects are sent as bytes. Other tensors of that size are weights and data, which the host does
 * not read again. */
static bool is_object(size_t bytes)
{
    static size_t copied;
    if ((reader.type != SIMGPU_UINT8 && reader.type != SIMGPU_INT8) ||
        bytes > SIMGPU_LARGE_CONTENTS_BYTES - copied) {
        return false;
    }
    copied += bytes;
    return true;
}

void sim_values_copy(struct sim_copy *copy, struct sim_location to, struct sim_location from,
                     size_t to_bytes, size_t from_bytes)
{
    uint64_t source = (uint64_t)copy->from;
    if (sim_settings.values == SIM_VALUES_MEMORY || (is_host(to) && is_host(from))) {
        return;
    }
    bool known = is_host(from) || holds(&written, source, source + from_bytes);
    bool is_filled = !is_host(from) && holds(&filled, source, source + from_bytes);
    copy->is_moved = sim_copy_is_dropped(copy) && known && (!is_host(from) || is_object(to_bytes));
    if (!is_host(to)) {
        note((uint64_t)copy->to, to_bytes, known && !sim_copy_is_dropped(copy));
        if (is_filled && !sim_copy_is_dropped(copy)) {
            add(&filled, (uint64_t)copy->to, (uint64_t)copy->to + to_bytes);
        }
    } else if (!known) {
        copy->answer = answer_to(source, from_bytes);
        tell(from.device, copy->from, copy->width * copy->height * copy->depth);
    }
}

void sim_values_set(const struct sim_work *work, uint64_t at, size_t bytes)
{
    note(at, bytes, false);
    if (sim_settings.values != SIM_VALUES_MEMORY && !sim_set_is_dropped(&work->set)) {
        add(&filled, at, at + bytes);
    }
}
