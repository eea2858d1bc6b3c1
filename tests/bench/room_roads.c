/* SPDX-License-Identifier: Apache-2.0 */
/* Hot roads of single rooms, without a hook around them: room_roads FOLDER, for a trace. */
#include <stdbool.h>
#include <stdlib.h>

#include "allocator/device/dry.h"
#include "allocator/pool.h"
#include "report/write/writer.h"
#include "roads.h"
#include "shim/sites/native/native.h"

#define GRANULE_BYTES ((uint64_t)2 << 20)
#define DEVICE_BYTES  ((uint64_t)1 << 40)
#define HOLES         ((size_t)4096)
#define FRAMES        40u
#define EVENT_BYTES   4096u

static ms_trace_t *trace;
static ms_pool_t *pool;

/* --- A stack that came before */

static void (*volatile at_bottom)(void);
static struct ms_native_stack stack;

__attribute__((noinline)) static uint32_t deep(uint32_t level)
{
    volatile uint32_t here = level;
    if (level == 0) {
        at_bottom();
        return here;
    }
    return deep(level - 1) + here;
}

ROAD(capture)
{
    (void)i;
    ms_native_capture(64, &stack);
}

static void walk_capture(void)
{
    WALK(capture);
}

/* --- An event into the trace */

ROAD(event)
{
    struct ms_event told = {.kind = i % 2 == 0 ? MS_EVENT_TENSOR_ALLOC : MS_EVENT_TENSOR_FREE,
                            .owner = MS_OWNER_POOL,
                            .id = i / 2 + 1,
                            .addr = (uint64_t)1 << 40,
                            .bytes = EVENT_BYTES};
    ms_trace_emit(trace, &told);
}

/* --- The best of many holes, and back to it */

static ms_addr_t must_alloc(uint64_t bytes)
{
    const struct ms_request request = {.bytes = bytes, .stream = 1, .may_wait = true};
    struct ms_block_info block;
    if (ms_pool_alloc(pool, &request, &block) != MS_OK) {
        abort();
    }
    return block.addr;
}

ROAD(hole)
{
    (void)i;
    (void)ms_pool_free(pool, must_alloc(512 * (1 + roads_random() % 100)), 1);
}

static void make_holes(void)
{
    static ms_addr_t blocks[2 * HOLES];
    static struct ms_budget budget;
    const struct ms_dry_config device = {.granule_bytes = GRANULE_BYTES,
                                         .total_bytes = DEVICE_BYTES};
    ms_dry_t *dry;
    if (ms_dry_create(&device, &dry) != MS_OK || ms_dry_stream_create(dry, 1) != MS_OK) {
        abort();
    }
    ms_budget_init(&budget, DEVICE_BYTES);
    const struct ms_pool_config config = {.ops = ms_dry_ops(dry), .budget = &budget};
    if (ms_pool_create(&config, &pool) != MS_OK) {
        abort();
    }
    for (size_t k = 0; k < 2 * HOLES; k++) {
        blocks[k] = must_alloc(512 * (1 + roads_random() % 100));
    }
    for (size_t k = 0; k < HOLES; k++) {
        (void)ms_pool_free(pool, blocks[2 * k], 1);
    }
}

int main(int argc, char **argv)
{
    const struct ms_trace_config config = {
        .output_dir = argc == 2 ? argv[1] : NULL,
        .process = {.run_id = "roads", .program = "roads", .rank = -1, .local_rank = -1}};
    char why[512];
    if (argc != 2) {
        (void)fprintf(stderr, "usage: room_roads FOLDER\n");
        return 2;
    }
    say_world();
    ms_native_prepare();
    at_bottom = walk_capture;
    (void)deep(FRAMES);
    trace = ms_trace_open(&config, why, sizeof(why));
    if (trace == NULL) {
        (void)fprintf(stderr, "room_roads: %s\n", why);
        return 1;
    }
    ms_trace_device(trace, 0, "roads", NULL, DEVICE_BYTES, DEVICE_BYTES);
    WALK(event);
    make_holes();
    WALK(hole);
    end_of_roads();
}
