/* SPDX-License-Identifier: Apache-2.0 */
/* Extracts the course from a recording, and draws a line through two courses. */
#include "report/replay/course.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"

#define LEAST_BLOCK 512                 /* PyTorch's kMinBlockSize */
#define SMALL_SIZE  (UINT64_C(1) << 20) /* kSmallSize: larger ones are in another pool */
#define UNNUMBERED  0                   /* an object outside the course */

/* ---- extracting it ---- */

static bool is_allocation(const struct ms_operation *operation)
{
    return operation->kind == MS_OPERATION_TENSOR_ALLOC ||
           (operation->kind == MS_OPERATION_ALLOC && operation->arena == MS_RECORDED_NONE);
}

static bool is_free(const struct ms_operation *operation)
{
    return operation->kind == MS_OPERATION_TENSOR_FREE || operation->kind == MS_OPERATION_FREE;
}

static bool is_charge(const struct ms_operation *operation)
{
    return operation->kind == MS_OPERATION_CHARGE || operation->kind == MS_OPERATION_DISCHARGE;
}

/* numbers: the objects' numbers in the course, by their numbers in the recording. False: no host
 * memory. */
static bool take(struct ms_recording *course, const struct ms_operation *operation,
                 uint32_t *numbers)
{
    const bool born = is_allocation(operation);
    const bool died = is_free(operation) && numbers[operation->object] != UNNUMBERED;
    struct ms_operation *taken;

    if (!born && !died && !is_charge(operation)) {
        return true;
    }
    taken = ms_buffer_extend(&course->operations, sizeof(*taken));
    if (!taken) {
        return false;
    }
    *taken = *operation;
    taken->object = 0;
    if (born) {
        numbers[operation->object] = ++course->objects;
    }
    if (born || died) {
        taken->object = numbers[operation->object];
    }
    return true;
}

static bool take_all(struct ms_recording *course, const struct ms_recording *recording)
{
    uint32_t *numbers = calloc((size_t)recording->objects + 1, sizeof(*numbers));
    bool good = numbers != NULL;

    ms_buffer_append(&course->arenas, recording->arenas.at, recording->arenas.bytes);
    for (size_t i = 0; good && i < ms_recording_count(recording); i++) {
        good = take(course, ms_recording_at(recording, i), numbers);
    }
    free(numbers);
    return good && !course->arenas.failed;
}

struct ms_recording *ms_course_of(const struct ms_recording *recording)
{
    struct ms_recording *course = ms_recording_new(recording->device);

    if (course && !take_all(course, recording)) {
        ms_recording_delete(course);
        course = NULL;
    }
    return course;
}

/* ---- two courses beside each other ---- */

#define WINDOW 256 /* operations that one of them may have more at one place */
#define ALIKE  8   /* operations after that place that must match in sequence */

/* One of the two: its position, and its objects' numbers in the other. */
struct side {
    const struct ms_recording *course;
    uint64_t batch;
    size_t at;
    uint32_t *partners;
};

struct pair {
    struct side near, other;
    uint64_t batch;
    uint32_t arenas[2]; /* the arena of the last large and of the last small tensor;
                           MS_RECORDED_NONE */
    struct ms_recording *made;
};

static const struct ms_operation *ahead(const struct side *side, size_t by)
{
    return side->at + by < ms_recording_count(side->course)
               ? ms_recording_at(side->course, side->at + by)
               : NULL;
}

/* Whether the two sizes can be of one request: constant, following the batch, or in between. */
static bool is_plausible(const struct pair *pair, uint64_t near_bytes, uint64_t other_bytes)
{
    const double scaled =
        (double)other_bytes * (double)pair->near.batch / (double)pair->other.batch;
    const double least = scaled < (double)other_bytes ? scaled : (double)other_bytes;
    const double most = scaled > (double)other_bytes ? scaled : (double)other_bytes;
    const double slack = LEAST_BLOCK * (1 + (double)pair->near.batch / (double)pair->other.batch);

    return (double)near_bytes >= least - slack && (double)near_bytes <= most + slack;
}

static bool are_alike(const struct pair *pair, const struct ms_operation *near,
                      const struct ms_operation *other)
{
    if (!near || !other || near->kind != other->kind) {
        return near == other;
    }
    return is_free(near)     ? pair->near.partners[near->object] == other->object
           : is_charge(near) ? true
                             : is_plausible(pair, near->bytes, other->bytes);
}

/* Objects allocated after the place have no partner yet. */
static bool may_be_alike(const struct pair *pair, const struct ms_operation *near,
                         const struct ms_operation *other)
{
    return are_alike(pair, near, other) ||
           (near && other && near->kind == other->kind && is_free(near) &&
            pair->near.partners[near->object] == UNNUMBERED &&
            pair->other.partners[other->object] == UNNUMBERED);
}

static bool meet(const struct pair *pair, size_t near_by, size_t other_by)
{
    for (size_t i = 0; i < ALIKE; i++) {
        if (!may_be_alike(pair, ahead(&pair->near, near_by + i),
                          ahead(&pair->other, other_by + i))) {
            return false;
        }
    }
    return true;
}

/* The fewest operations to skip in both, so that they match again. False: they do not match again
 * soon. */
static bool find_meeting(const struct pair *pair, size_t *near_by, size_t *other_by)
{
    for (size_t both = 1; both <= WINDOW; both++) {
        for (*near_by = 0; *near_by <= both; ++*near_by) {
            *other_by = both - *near_by;
            if (meet(pair, *near_by, *other_by)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- foretelling ---- */

static uint64_t size_of(const struct pair *pair, uint64_t near_bytes, uint64_t other_bytes)
{
    const double from = (double)pair->near.batch;
    const double each =
        ((double)other_bytes - (double)near_bytes) / ((double)pair->other.batch - from);
    const double bytes = (double)near_bytes + each * ((double)pair->batch - from);

    return bytes < LEAST_BLOCK ? LEAST_BLOCK : (uint64_t)(bytes + 0.5);
}

/* A tensor that grows beyond the small sizes, or the other way, belongs into the other kind of
 * arena. */
static void choose_arena(struct pair *pair, const struct ms_operation *near,
                         struct ms_operation *made)
{
    const bool small = made->bytes <= SMALL_SIZE;

    if (small != (near->bytes <= SMALL_SIZE) && pair->arenas[small] != MS_RECORDED_NONE) {
        made->arena = pair->arenas[small];
    }
    pair->arenas[small] = made->arena;
}

/* The size that the other run would have asked for: in proportion to its batch. */
static uint64_t scaled(const struct pair *pair, uint64_t near_bytes)
{
    return (uint64_t)((double)near_bytes * (double)pair->other.batch / (double)pair->near.batch);
}

static bool tell(struct pair *pair, const struct ms_operation *near, uint64_t other_bytes)
{
    struct ms_operation *made = ms_buffer_extend(&pair->made->operations, sizeof(*made));

    if (!made) {
        return false;
    }
    *made = *near;
    if (near->bytes != other_bytes) {
        made->bytes = size_of(pair, near->bytes, other_bytes);
        made->bytes = is_charge(near) ? made->bytes : ms_round_up(made->bytes, LEAST_BLOCK);
    }
    if (near->kind == MS_OPERATION_TENSOR_ALLOC) {
        choose_arena(pair, near, made);
    }
    return true;
}

static bool tell_both(struct pair *pair)
{
    const struct ms_operation *near = ahead(&pair->near, 0), *other = ahead(&pair->other, 0);

    if (is_allocation(near)) {
        pair->near.partners[near->object] = other->object;
        pair->other.partners[other->object] = near->object;
    }
    pair->near.at++;
    pair->other.at++;
    return tell(pair, near, other->bytes);
}

/* Requests of the nearer run alone are kept, in proportion to the batch; those of the other run
 * alone are dropped. */
static bool tell_apart(struct pair *pair, size_t near_by, size_t other_by)
{
    bool good = true;

    for (size_t i = 0; good && i < near_by; i++) {
        const struct ms_operation *near = ahead(&pair->near, 0);

        good = tell(pair, near, is_charge(near) ? near->bytes : scaled(pair, near->bytes));
        pair->near.at++;
    }
    pair->other.at += other_by;
    return good;
}

static bool is_of_one(const struct side *side)
{
    const struct ms_operation *operation = ahead(side, 0);

    return is_free(operation) && side->partners[operation->object] == UNNUMBERED;
}

static bool tell_next(struct pair *pair)
{
    const struct ms_operation *near = ahead(&pair->near, 0), *other = ahead(&pair->other, 0);
    size_t near_by = is_of_one(&pair->near), other_by = is_of_one(&pair->other);

    if (near_by + other_by > 0) {
        return tell_apart(pair, near_by, other_by);
    }
    if (are_alike(pair, near, other)) {
        return tell_both(pair);
    }
    if (find_meeting(pair, &near_by, &other_by)) {
        return tell_apart(pair, near_by, other_by);
    }
    return near->kind == other->kind && is_allocation(near) && tell_both(pair);
}

static bool tell_all(struct pair *pair)
{
    const size_t near = ms_recording_count(pair->near.course);
    const size_t other = ms_recording_count(pair->other.course);

    pair->made->objects = pair->near.course->objects;
    ms_buffer_append(&pair->made->arenas, pair->near.course->arenas.at,
                     pair->near.course->arenas.bytes);
    while (pair->near.at < near && pair->other.at < other) {
        if (!tell_next(pair)) {
            return false;
        }
    }
    return !pair->made->arenas.failed;
}

struct ms_recording *ms_course_foretell(const struct ms_recording *near, uint64_t near_batch,
                                        const struct ms_recording *other, uint64_t other_batch,
                                        uint64_t batch)
{
    struct pair pair = {
        .near = {near, near_batch, 0, calloc((size_t)near->objects + 1, sizeof(uint32_t))},
        .other = {other, other_batch, 0, calloc((size_t)other->objects + 1, sizeof(uint32_t))},
        .batch = batch,
        .arenas = {MS_RECORDED_NONE, MS_RECORDED_NONE},
        .made = ms_recording_new(near->device)};

    if (!pair.near.partners || !pair.other.partners || !pair.made || !tell_all(&pair)) {
        ms_recording_delete(pair.made);
        pair.made = NULL;
    }
    free(pair.near.partners);
    free(pair.other.partners);
    return pair.made;
}
