/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device: its life, its accounts and its failures. The operations on memory are in
 * dry_memory.c, those of queued work in dry_work.c, those of standstills in dry_halt.c. */
#include "allocator/device/dry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/containers/pages.h"
#include "allocator/device/dry_state.h"

const struct ms_dry_costs ms_dry_default_costs = {.call_ns =
                                                      {
                                                          [MS_DRY_ADDRESS_RESERVE] = 5000,
                                                          [MS_DRY_ADDRESS_FREE] = 5000,
                                                          [MS_DRY_CHUNK_CREATE] = 193000,
                                                          [MS_DRY_CHUNK_RELEASE] = 20000,
                                                          [MS_DRY_MAP] = 1500,
                                                          [MS_DRY_SET_ACCESS] = 36000,
                                                          [MS_DRY_UNMAP] = 26000,
                                                          [MS_DRY_FENCE_TAKE] = 1000,
                                                          [MS_DRY_FENCE_QUERY] = 500,
                                                          [MS_DRY_FENCE_WAIT] = 5000,
                                                          [MS_DRY_STREAM_WAIT] = 1000,
                                                          [MS_DRY_PLAIN_ALLOC] = 100000,
                                                          [MS_DRY_PLAIN_FREE] = 100000,
                                                          [MS_DRY_HALT] = 50000,
                                                          [MS_DRY_COPY] = 5000,
                                                          [MS_DRY_COPY_WAIT] = 5000,
                                                      },
                                                  .down_ns_per_mib = 41943,
                                                  .up_ns_per_mib = 41943};

#define FIRST_ADDRESS ((ms_addr_t)0x700000000000u)

bool ms_dry_begin(struct ms_dry *dry, enum ms_dry_op op, ms_status_t *status)
{
    ms_lock_check_driver("an operation");
    dry->calls[op]++;
    dry->now_ns += dry->costs.call_ns[op];
    dry->cost_ns += dry->costs.call_ns[op];
    dry->all_calls++;
    if (dry->fail_at[op] == dry->calls[op]) {
        *status = dry->fail_status[op];
        return false;
    }
    if (dry->all_calls >= dry->fail_from && dry->all_calls < dry->fail_end) {
        *status = dry->fail_all_status;
        return false;
    }
    return true;
}

void ms_dry_violated(struct ms_dry *dry, const char *format, ...)
{
    if (dry->violation[0] != '\0') {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(dry->violation, sizeof(dry->violation), format, arguments);
    va_end(arguments);
}

bool ms_dry_room(void **array, uint64_t count, uint64_t *room, size_t element_bytes)
{
    if (count < *room) {
        return true;
    }
    uint64_t wanted = *room == 0 ? 256 : *room * 2;
    void *grown = realloc(*array, wanted * element_bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *room = wanted;
    return true;
}

static bool report_uses(void *ctx)
{
    const struct ms_dry *dry = ctx;
    return !dry->uses_untold;
}

ms_status_t ms_dry_create(const struct ms_dry_config *config, ms_dry_t **out)
{
    struct ms_dry *dry = calloc(1, sizeof(*dry));
    if (dry == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    ms_lock_init(&dry->lock, MS_RANK_DRY);
    dry->ops = (struct ms_device_ops){.ctx = dry,
                                      .granule_bytes = config->granule_bytes,
                                      .total_bytes = config->total_bytes,
                                      .report_uses = report_uses};
    ms_dry_memory_fill_ops(&dry->ops);
    ms_dry_work_fill_ops(&dry->ops);
    ms_dry_halt_fill_ops(&dry->ops);
    dry->ops.captures = &dry->capturing;
    if (config->costs != NULL) {
        dry->costs = *config->costs;
    }
    dry->no_host = config->no_host;
    dry->uses_untold = config->uses_untold;
    dry->next_addr = FIRST_ADDRESS;
    ms_slab_init(&dry->piece_slab, sizeof(struct dry_piece));
    *out = dry;
    return MS_OK;
}

void ms_dry_destroy(ms_dry_t *dry)
{
    if (dry == NULL) {
        return;
    }
    while (dry->reservations != NULL) {
        struct dry_reservation *gone = dry->reservations;
        dry->reservations = gone->next;
        ms_pages_unmap(gone->slots, gone->bytes / dry->ops.granule_bytes * sizeof(*gone->slots));
        free(gone);
    }
    while (dry->plains != NULL) {
        struct dry_plain *gone = dry->plains;
        dry->plains = gone->next;
        free(gone);
    }
    ms_slab_destroy(&dry->piece_slab);
    for (uint64_t k = 0; k < dry->chunk_count; k++) {
        free(dry->chunks[k].tags);
    }
    free(dry->chunks);
    free(dry->copies);
    free(dry->fences);
    free(dry);
}

const struct ms_device_ops *ms_dry_ops(ms_dry_t *dry)
{
    return &dry->ops;
}

void ms_dry_fail(ms_dry_t *dry, enum ms_dry_op op, uint64_t nth, ms_status_t status)
{
    ms_lock_acquire(&dry->lock);
    dry->fail_at[op] = nth == 0 ? 0 : dry->calls[op] + nth;
    dry->fail_status[op] = status;
    ms_lock_release(&dry->lock);
}

void ms_dry_fail_run(ms_dry_t *dry, uint64_t nth, uint64_t count, ms_status_t status)
{
    ms_lock_acquire(&dry->lock);
    dry->fail_from = dry->all_calls + nth;
    dry->fail_end = dry->fail_from + (nth == 0 ? 0 : count);
    dry->fail_all_status = status;
    ms_lock_release(&dry->lock);
}

uint64_t ms_dry_calls(ms_dry_t *dry, enum ms_dry_op op)
{
    ms_lock_acquire(&dry->lock);
    uint64_t calls = dry->calls[op];
    ms_lock_release(&dry->lock);
    return calls;
}

uint64_t ms_dry_cost_ns(ms_dry_t *dry)
{
    ms_lock_acquire(&dry->lock);
    uint64_t cost_ns = dry->cost_ns;
    ms_lock_release(&dry->lock);
    return cost_ns;
}

bool ms_dry_accessible(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes)
{
    ms_lock_acquire(&dry->lock);
    bool accessible = ms_dry_is_accessible(dry, addr, bytes);
    ms_lock_release(&dry->lock);
    return accessible;
}

void ms_dry_stats(ms_dry_t *dry, struct ms_dry_stats *out)
{
    ms_lock_acquire(&dry->lock);
    *out = dry->stats;
    for (int k = 0; k < MS_DRY_STREAMS; k++) {
        out->unfinished_work += dry->streams[k].queued - dry->streams[k].done;
    }
    ms_lock_release(&dry->lock);
}

const char *ms_dry_violation(ms_dry_t *dry)
{
    ms_lock_acquire(&dry->lock);
    const char *violation = dry->violation[0] == '\0' ? NULL : dry->violation;
    ms_lock_release(&dry->lock);
    return violation;
}
