/* SPDX-License-Identifier: Apache-2.0 */
/* Adds reservations and pages to a recording. */
#include "allocator/base/containers/numbers.h"
#include "report/replay/recording_state.h"

struct ms_complaint ms_recording_reserve(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t reservation, uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {.kind = MS_OPERATION_RESERVE, .time_us = time_us};
    const struct ms_complaint complaint = ms_recorded_check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (addr % MS_RECORDED_GRANULE_BYTES != 0 || bytes % MS_RECORDED_GRANULE_BYTES != 0) {
        return ms_complaint_of("addr", "and bytes of a reservation are multiples of 2 MiB");
    }
    if (ms_numbers_get(recording->reservations, reservation) != MS_NUMBER_NONE) {
        return ms_complaint_of("id", "is a reservation already");
    }
    operation.arena = ms_recorded_add_arena(recording, addr, bytes, true);
    if (operation.arena == MS_RECORDED_NONE ||
        !ms_numbers_put(recording->reservations, reservation, operation.arena)) {
        return ms_no_memory;
    }
    return ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_unreserve(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t reservation)
{
    const struct ms_operation operation = {.kind = MS_OPERATION_UNRESERVE,
                                           .arena =
                                               ms_numbers_get(recording->reservations, reservation),
                                           .time_us = time_us};

    if (operation.arena == MS_NUMBER_NONE) {
        return ms_complaint_of("id", "is no reservation");
    }
    ms_numbers_remove(recording->reservations, reservation);
    return ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_map(struct ms_recording *recording, uint64_t time_us,
                                     uint64_t reservation, uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {
        .kind = MS_OPERATION_MAP, .offset = addr, .bytes = bytes, .time_us = time_us};
    struct ms_complaint complaint = ms_recorded_check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (addr % MS_RECORDED_GRANULE_BYTES != 0 || bytes % MS_RECORDED_GRANULE_BYTES != 0) {
        return ms_complaint_of("addr", "and bytes of a page are multiples of 2 MiB");
    }
    complaint = ms_recorded_check_place(recording, addr, bytes);
    if (complaint.field) {
        return complaint;
    }
    if (ms_numbers_get(recording->reservations, reservation) == MS_NUMBER_NONE) {
        complaint = ms_recording_reserve(recording, time_us, reservation, addr, bytes);
    }
    operation.arena = ms_numbers_get(recording->reservations, reservation);
    if (complaint.field || operation.arena == MS_NUMBER_NONE) {
        return ms_no_memory;
    }

    struct ms_recorded_arena *arena = ms_recorded_arena_at(recording, operation.arena);
    const uint64_t end =
        arena->addr + arena->bytes > addr + bytes ? arena->addr + arena->bytes : addr + bytes;

    arena->addr = arena->addr < addr ? arena->addr : addr;
    arena->bytes = end - arena->addr;

    const struct ms_recorded_place place = {
        .addr = addr, .bytes = bytes, .operation = MS_RECORDED_NONE, .arena = operation.arena};

    recording->maps++;
    return ms_recorded_add_place(recording, &place) ? ms_recorded_add(recording, &operation)
                                                    : ms_no_memory;
}

struct ms_complaint ms_recording_unmap(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {
        .kind = MS_OPERATION_UNMAP, .offset = addr, .bytes = bytes, .time_us = time_us};
    struct ms_complaint complaint = ms_recorded_check_bytes(bytes);
    const struct ms_recorded_place *first = ms_recorded_place_at(recording, addr);
    uint64_t at = addr;

    if (complaint.field) {
        return complaint;
    }
    if (!first || first->operation != MS_RECORDED_NONE) {
        return ms_complaint_of("addr", "is not where a page is mapped");
    }
    operation.arena = first->arena;
    while (at - addr < bytes) {
        const struct ms_recorded_place *page = ms_recorded_place_at(recording, at);

        if (!page || page->addr != at || page->arena != operation.arena ||
            page->bytes > bytes - (at - addr)) {
            return ms_complaint_of("bytes", "does not end where a page does");
        }
        at += page->bytes;
    }
    for (at = addr; at - addr < bytes;) {
        struct ms_recorded_place *page = ms_recorded_place_at(recording, at);

        at += page->bytes;
        ms_recorded_remove_place(recording, page);
    }
    return ms_recorded_add(recording, &operation);
}
