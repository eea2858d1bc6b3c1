/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends a recording, and adds operations that are not about blocks, tensors or pages. */
#include "report/replay/recording.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/containers/numbers.h"
#include "report/replay/recording_state.h"

bool ms_recording_begin(struct ms_recording *recording)
{
    memset(recording, 0, sizeof(*recording));
    ms_slab_init(&recording->place_slab, sizeof(struct ms_recorded_place));
    recording->live = ms_numbers_new();
    recording->reservations = ms_numbers_new();
    recording->stream_numbers = ms_numbers_new();
    recording->sites = ms_numbers_new();
    return recording->live && recording->reservations && recording->stream_numbers &&
           recording->sites;
}

void ms_recording_free(struct ms_recording *recording)
{
    ms_buffer_free(&recording->operations);
    ms_buffer_free(&recording->arenas);
    ms_buffer_free(&recording->site_names);
    ms_buffer_free(&recording->site_starts);
    ms_slab_destroy(&recording->place_slab);
    ms_numbers_delete(recording->sites);
    ms_numbers_delete(recording->live);
    ms_numbers_delete(recording->reservations);
    ms_numbers_delete(recording->stream_numbers);
}

struct ms_recording *ms_recording_new(unsigned device)
{
    struct ms_recording *recording = malloc(sizeof(*recording));

    if (recording && !ms_recording_begin(recording)) {
        ms_recording_delete(recording);
        return NULL;
    }
    if (recording) {
        recording->device = device;
    }
    return recording;
}

void ms_recording_delete(struct ms_recording *recording)
{
    if (recording) {
        ms_recording_free(recording);
        free(recording);
    }
}

/* ---- operations ---- */

struct ms_complaint ms_recorded_add(struct ms_recording *recording,
                                    const struct ms_operation *operation)
{
    struct ms_operation *added = NULL;

    if (ms_recording_count(recording) < MS_RECORDED_NONE) {
        added = ms_buffer_extend(&recording->operations, sizeof(*added));
    }
    if (!added) {
        return ms_no_memory;
    }
    *added = *operation;
    return ms_fine;
}

uint32_t ms_recorded_add_arena(struct ms_recording *recording, uint64_t addr, uint64_t bytes,
                               bool reservation)
{
    const size_t index = ms_recording_arenas(recording);
    struct ms_recorded_arena *arena = ms_buffer_extend(&recording->arenas, sizeof(*arena));

    if (!arena) {
        return MS_RECORDED_NONE;
    }
    *arena = (struct ms_recorded_arena){.addr = addr, .bytes = bytes, .reservation = reservation};
    return (uint32_t)index;
}

uint8_t ms_recorded_stream(struct ms_recording *recording, uint64_t stream)
{
    if (stream == 0) {
        return 0;
    }

    uint32_t number = ms_numbers_get(recording->stream_numbers, stream);

    if (number == MS_NUMBER_NONE) {
        recording->streams += recording->streams < MS_RECORDED_STREAMS;
        number = recording->streams;
        (void)ms_numbers_put(recording->stream_numbers, stream, number);
    }
    return (uint8_t)number;
}

struct ms_complaint ms_recorded_check_bytes(uint64_t bytes)
{
    if (bytes == 0) {
        return ms_complaint_of("bytes", "is 0");
    }
    return bytes > MS_RECORDED_MOST_BYTES ? ms_complaint_of("bytes", "is more than any device has")
                                          : ms_fine;
}

/* The reservation that begins here and whose first page is not mapped; MS_RECORDED_NONE: none
 * does. */
static uint32_t reservation_at(const struct ms_recording *recording, uint64_t addr)
{
    for (size_t i = ms_recording_arenas(recording); i > 0; i--) {
        const struct ms_recorded_arena *arena = ms_recorded_arena_at(recording, (uint32_t)i - 1);

        if (arena->reservation && arena->addr == addr) {
            return (uint32_t)i - 1;
        }
    }
    return MS_RECORDED_NONE;
}

struct ms_complaint ms_recording_freeze(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr)
{
    const struct ms_recorded_place *place = ms_recorded_place_at(recording, addr);
    const struct ms_operation operation = {.kind = MS_OPERATION_FREEZE,
                                           .arena = place ? ms_recorded_arena_of(recording, place)
                                                          : reservation_at(recording, addr),
                                           .time_us = time_us};

    if (operation.arena == MS_RECORDED_NONE) {
        return ms_complaint_of("addr", "lies in no segment and no mapped page");
    }
    return ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_charge(struct ms_recording *recording, uint64_t time_us,
                                        enum ms_operation_kind kind, uint64_t bytes)
{
    const struct ms_operation operation = {
        .kind = (uint8_t)kind, .arena = MS_RECORDED_NONE, .bytes = bytes, .time_us = time_us};
    const struct ms_complaint complaint = ms_recorded_check_bytes(bytes);

    return complaint.field ? complaint : ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_step(struct ms_recording *recording, uint64_t time_us)
{
    const struct ms_operation operation = {
        .kind = MS_OPERATION_STEP, .arena = MS_RECORDED_NONE, .time_us = time_us};

    recording->steps++;
    return ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_refused(struct ms_recording *recording, uint64_t time_us,
                                         enum ms_operation_kind kind, uint64_t bytes,
                                         uint64_t stream, uint32_t site)
{
    const struct ms_complaint complaint = ms_recorded_check_bytes(bytes);
    struct ms_operation operation = {.kind = (uint8_t)kind,
                                     .arena = MS_RECORDED_NONE,
                                     .bytes = bytes,
                                     .site = site,
                                     .time_us = time_us};

    if (complaint.field) {
        return complaint;
    }
    operation.stream = ms_recorded_stream(recording, stream);
    return ms_recorded_add(recording, &operation);
}

/* A hash of 64 bits stands for a name. With a million names the chance of an equal pair is 1 in 37
 * million, and two such sites would share a name in a message. */
uint32_t ms_recording_site(struct ms_recording *recording, const char *name, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (bytes == 0) {
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    }

    const uint32_t known = ms_numbers_get(recording->sites, hash);

    if (known != MS_NUMBER_NONE) {
        return known;
    }

    size_t *start = ms_buffer_extend(&recording->site_starts, sizeof(*start));

    if (!start) {
        return 0;
    }
    *start = recording->site_names.bytes;
    ms_buffer_append(&recording->site_names, name, bytes);
    (void)ms_buffer_extend(&recording->site_names, 1);

    const uint32_t site = (uint32_t)(recording->site_starts.bytes / sizeof(*start));

    return ms_numbers_put(recording->sites, hash, site) ? site : 0;
}

const char *ms_recording_site_name(const struct ms_recording *recording, uint32_t site)
{
    const size_t *starts = (const size_t *)recording->site_starts.at;

    if (site == 0 || site > recording->site_starts.bytes / sizeof(*starts) ||
        recording->site_names.failed) {
        return NULL;
    }
    return recording->site_names.at + starts[site - 1];
}

/* A refused request is never live. */
static void count_refused(struct ms_recording *recording, const struct ms_operation *operation,
                          uint64_t live_bytes)
{
    recording->refused += operation->kind == MS_OPERATION_REFUSED;
    if (operation->kind == MS_OPERATION_FATAL) {
        recording->fatal++;
        live_bytes += operation->bytes;
    }
    if (live_bytes > recording->peak_wanted_bytes) {
        recording->peak_wanted_bytes = live_bytes;
    }
}

uint32_t ms_recording_last_site(const struct ms_recording *recording)
{
    uint32_t last = 0;

    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        const uint32_t site = ms_recording_at(recording, i)->site;

        last = site > last ? site : last;
    }
    return last;
}

void ms_recording_set_optional(struct ms_recording *recording, const bool *sites)
{
    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        struct ms_operation *operation = ms_recorded_operation_at(recording, (uint32_t)i);

        operation->optional =
            operation->kind == MS_OPERATION_TENSOR_ALLOC && sites[operation->site];
    }
}

bool ms_recording_end(struct ms_recording *recording)
{
    uint64_t live_bytes = 0;

    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        struct ms_operation *operation = ms_recorded_operation_at(recording, (uint32_t)i);
        const bool block =
            operation->kind == MS_OPERATION_ALLOC || operation->kind == MS_OPERATION_FREE;
        const bool tensor = operation->kind == MS_OPERATION_TENSOR_ALLOC ||
                            operation->kind == MS_OPERATION_TENSOR_FREE;

        if (tensor || operation->kind == MS_OPERATION_CACHED ||
            operation->kind == MS_OPERATION_MAP || operation->kind == MS_OPERATION_UNMAP) {
            operation->offset -= ms_recorded_arena_at(recording, operation->arena)->addr;
        }
        if (operation->kind == MS_OPERATION_RESERVE) {
            operation->bytes = ms_recorded_arena_at(recording, operation->arena)->bytes;
        }
        if (tensor || (block && operation->arena == MS_RECORDED_NONE)) {
            const bool ends =
                operation->kind == MS_OPERATION_FREE || operation->kind == MS_OPERATION_TENSOR_FREE;

            live_bytes = ends ? live_bytes - operation->bytes : live_bytes + operation->bytes;
        }
        if (live_bytes > recording->peak_live_bytes) {
            recording->peak_live_bytes = live_bytes;
        }
        count_refused(recording, operation, live_bytes);
    }
    recording->end_live_bytes = live_bytes;
    return !recording->operations.failed && !recording->arenas.failed;
}
