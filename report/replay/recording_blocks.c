/* SPDX-License-Identifier: Apache-2.0 */
/* Adds blocks and tensors to a recording. */
#include "allocator/base/containers/numbers.h"
#include "report/replay/recording_state.h"

/* An allocation: of a block or a tensor. */
static struct ms_complaint add_allocation(struct ms_recording *recording,
                                          const struct ms_operation *operation, uint64_t id)
{
    const size_t index = ms_recording_count(recording);
    const struct ms_complaint complaint = ms_recorded_add(recording, operation);

    if (complaint.field) {
        return complaint;
    }
    ms_recorded_operation_at(recording, (uint32_t)index)->object = recording->objects++;
    return ms_numbers_put(recording->live, id, (uint32_t)index) ? ms_fine : ms_no_memory;
}

struct ms_complaint ms_recording_alloc(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id, uint64_t addr, uint64_t bytes, uint64_t stream,
                                       uint32_t site, bool segment)
{
    struct ms_operation operation = {.kind = MS_OPERATION_ALLOC,
                                     .arena = MS_RECORDED_NONE,
                                     .offset = addr,
                                     .bytes = bytes,
                                     .site = site,
                                     .time_us = time_us};
    struct ms_complaint complaint = ms_recorded_check_bytes(bytes);

    if (!complaint.field && addr != 0) {
        complaint = ms_recorded_check_place(recording, addr, bytes);
    }
    if (!complaint.field && ms_numbers_get(recording->live, id) != MS_NUMBER_NONE) {
        complaint = ms_complaint_of("id", "is live already");
    }
    if (complaint.field) {
        return complaint;
    }
    if (segment) {
        operation.arena = ms_recorded_add_arena(recording, addr, bytes, false);
    }
    if (addr != 0) {
        const struct ms_recorded_place place = {
            .addr = addr, .bytes = bytes, .operation = (uint32_t)ms_recording_count(recording)};

        if (!ms_recorded_add_place(recording, &place)) {
            return ms_no_memory;
        }
    }
    operation.stream = ms_recorded_stream(recording, stream);
    recording->allocations++;
    return add_allocation(recording, &operation, id);
}

/* The allocation that ends here; null, with a complaint: there is none of that kind. */
static struct ms_operation *allocation_of(struct ms_recording *recording, uint64_t id,
                                          enum ms_operation_kind kind,
                                          struct ms_complaint *complaint)
{
    const uint32_t index = ms_numbers_get(recording->live, id);

    *complaint = ms_fine;
    if (index == MS_NUMBER_NONE) {
        *complaint = ms_complaint_of("id", "is not live");
        return NULL;
    }
    if (ms_recorded_operation_at(recording, index)->kind != kind) {
        *complaint = ms_complaint_of("id", kind == MS_OPERATION_ALLOC
                                               ? "is that of a tensor, not of a block"
                                               : "is that of a block, not of a tensor");
        return NULL;
    }
    return ms_recorded_operation_at(recording, index);
}

struct ms_complaint ms_recording_release(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t id, uint64_t stream)
{
    struct ms_complaint complaint;
    const struct ms_operation *allocation =
        allocation_of(recording, id, MS_OPERATION_ALLOC, &complaint);

    if (!allocation) {
        return complaint;
    }
    if (allocation->offset != 0) {
        ms_recorded_remove_place(recording, ms_recorded_place_at(recording, allocation->offset));
    }
    ms_numbers_remove(recording->live, id);

    struct ms_operation operation = *allocation;

    operation.kind = MS_OPERATION_FREE;
    operation.time_us = time_us;
    operation.stream = ms_recorded_stream(recording, stream);
    return ms_recorded_add(recording, &operation);
}

uint32_t ms_recorded_arena_of(struct ms_recording *recording, const struct ms_recorded_place *place)
{
    if (place->operation == MS_RECORDED_NONE) {
        return place->arena;
    }

    struct ms_operation *block = ms_recorded_operation_at(recording, place->operation);

    if (block->arena == MS_RECORDED_NONE) {
        block->arena = ms_recorded_add_arena(recording, place->addr, place->bytes, false);
    }
    return block->arena;
}

/* Checks that a range lies in one segment, or in mapped pages of one reservation. place: at
 * addr. */
static struct ms_complaint check_inside(const struct ms_recording *recording,
                                        const struct ms_recorded_place *place, uint64_t addr,
                                        uint64_t bytes)
{
    const struct ms_complaint complaint = ms_recorded_check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (!place) {
        return ms_complaint_of("addr", "lies in no segment and no mapped page");
    }

    const struct ms_recorded_place *last = ms_recorded_place_at(recording, addr + bytes - 1);
    const bool inside = last && (last == place || (last->operation == MS_RECORDED_NONE &&
                                                   place->operation == MS_RECORDED_NONE &&
                                                   last->arena == place->arena));

    return inside ? ms_fine
                  : ms_complaint_of("bytes", "reaches beyond the segment or the mapped pages");
}

struct ms_complaint ms_recording_allocated(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t id, uint64_t addr, uint64_t bytes,
                                           uint32_t site, uint64_t block)
{
    const struct ms_recorded_place *place = ms_recorded_place_at(recording, addr);
    const struct ms_complaint complaint = check_inside(recording, place, addr, bytes);

    if (complaint.field) {
        return complaint;
    }
    if (block != 0 && ms_numbers_get(recording->live, block) != place->operation) {
        return ms_complaint_of("addr", "lies in no segment and no mapped page");
    }
    if (ms_numbers_get(recording->live, id) != MS_NUMBER_NONE) {
        return ms_complaint_of("id", "is live already");
    }

    const struct ms_operation operation = {.kind = MS_OPERATION_TENSOR_ALLOC,
                                           .arena = ms_recorded_arena_of(recording, place),
                                           .offset = addr,
                                           .bytes = bytes,
                                           .site = site,
                                           .time_us = time_us};

    recording->tensor_allocations++;
    return operation.arena == MS_RECORDED_NONE ? ms_no_memory
                                               : add_allocation(recording, &operation, id);
}

struct ms_complaint ms_recording_freed(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id)
{
    struct ms_complaint complaint;
    const struct ms_operation *allocation =
        allocation_of(recording, id, MS_OPERATION_TENSOR_ALLOC, &complaint);

    if (!allocation) {
        return complaint;
    }

    struct ms_operation operation = *allocation;

    operation.kind = MS_OPERATION_TENSOR_FREE;
    operation.time_us = time_us;
    ms_numbers_remove(recording->live, id);
    return ms_recorded_add(recording, &operation);
}

struct ms_complaint ms_recording_cached(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr, uint64_t bytes)
{
    const struct ms_recorded_place *place = ms_recorded_place_at(recording, addr);
    const struct ms_complaint complaint = check_inside(recording, place, addr, bytes);

    if (complaint.field) {
        return complaint;
    }

    const struct ms_operation operation = {.kind = MS_OPERATION_CACHED,
                                           .arena = ms_recorded_arena_of(recording, place),
                                           .offset = addr,
                                           .bytes = bytes,
                                           .time_us = time_us};

    return operation.arena == MS_RECORDED_NONE ? ms_no_memory
                                               : ms_recorded_add(recording, &operation);
}
