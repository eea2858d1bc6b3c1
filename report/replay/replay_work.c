/* SPDX-License-Identifier: Apache-2.0 */
/* The replayed program's work on the dry device: on live ranges, uses of long-lived memory, and its
 * end. */
#include <stdio.h>
#include <string.h>

#include "report/replay/replay_state.h"
#include "report/replay/replay_uses.h"

#define FORGET_EVERY 64 /* operations */

ms_stream_t ms_replay_stream_of(const struct ms_operation *operation)
{
    const bool tensor =
        operation->kind == MS_OPERATION_TENSOR_ALLOC || operation->kind == MS_OPERATION_TENSOR_FREE;

    return tensor ? MS_REPLAY_COMMON_STREAM : operation->stream;
}

void ms_replay_work(struct ms_replay *replay, const struct ms_operation *operation, ms_addr_t addr)
{
    const ms_stream_t stream =
        ms_replay_stream_of(operation) ? ms_replay_stream_of(operation) : MS_REPLAY_COMMON_STREAM;

    if (replay->config->lag > 0) {
        (void)ms_dry_work(replay->dry, stream, operation->object + UINT64_C(1), addr,
                          operation->bytes, MS_DRY_UNTIL_TOLD);
        replay->working[replay->result->operations % replay->config->lag] = (uint8_t)stream;
    } else if (replay->config->checked && !replay->result->violation[0] &&
               !ms_dry_accessible(replay->dry, addr, operation->bytes)) {
        (void)snprintf(replay->result->violation, sizeof(replay->result->violation),
                       "a live byte of %s %zu is not backed", ms_operation_names[operation->kind],
                       (size_t)(operation - ms_recording_at(replay->recording, 0)));
    }
}

void ms_replay_use(struct ms_replay *replay, ms_addr_t addr, uint64_t bytes, bool written)
{
    if (replay->config->spill_bytes > 0) {
        const uint64_t on_host =
            (replay->config->uses_untold ? ms_pool_on_host_bytes : ms_pool_touch)(replay->pool,
                                                                                  addr, bytes);

        replay->result->used_on_host_bytes += written ? 2 * on_host : on_host;
    }
}

void ms_replay_use_kept(struct ms_replay *replay, size_t operation)
{
    for (; replay->next_use < ms_recorded_uses_count(&replay->uses); replay->next_use++) {
        const struct ms_recorded_use *used = ms_recorded_use_at(&replay->uses, replay->next_use);
        const struct ms_operation *allocation =
            ms_recording_at(replay->recording, used->allocation);
        const bool tensor = allocation->kind == MS_OPERATION_TENSOR_ALLOC &&
                            replay->config->mode == MS_REPLAY_NATIVE;

        if (used->operation > operation) {
            return;
        }
        ms_replay_use(replay,
                      tensor ? replay->base_of[allocation->arena] + allocation->offset
                             : replay->addr_of[allocation->object],
                      allocation->bytes, used->written);
    }
}

/* The dry device keeps every piece of work until a fence shows the host that it is done. */
static void forget_work(struct ms_replay *replay)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);

    if (replay->seen == 0) {
        replay->own_fences++;
        (void)ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &replay->seen);
        return;
    }
    replay->own_queries++;
    if (ops->fence_query(ops->ctx, replay->seen) == MS_OK) {
        ops->fence_release(ops->ctx, replay->seen);
        replay->seen = 0;
    }
}

void ms_replay_see_all_done(struct ms_replay *replay)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    ms_fence_t all;

    ms_dry_finish(replay->dry, MS_STREAM_DEVICE, UINT64_MAX);
    memset(replay->working, 0, replay->config->lag);
    replay->own_fences++;
    if (ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &all) == MS_OK) {
        replay->own_queries++;
        (void)ops->fence_query(ops->ctx, all);
        ops->fence_release(ops->ctx, all);
    }
}

void ms_replay_finish_work(struct ms_replay *replay)
{
    if (replay->config->lag > 0) {
        uint8_t *stream = &replay->working[replay->result->operations % replay->config->lag];

        if (*stream != 0) {
            ms_dry_finish(replay->dry, *stream, 1);
        }
        *stream = 0;
        if (replay->result->operations % FORGET_EVERY == 0) {
            forget_work(replay);
        }
    }
}
