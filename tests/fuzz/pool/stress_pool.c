/* Many threads on one pool under a tight cap: the cap, the books and the ownership of every byte
 * hold. A program of its own, without a test framework, so that it also runs under the thread
 * sanitizer.
 *
 *   stress_pool [ROUNDS]      of each of the threads; 20000 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/arena.h"
#include "allocator/dry.h"
#include "allocator/pool.h"

#define KIB       ((uint64_t)1 << 10)
#define MIB       ((uint64_t)1 << 20)
#define GRANULE   (2 * MIB)
#define CAP_BYTES (48 * MIB)

enum { THREADS = 8, HELD = 12, UNITS = 1 << 20, STAMP_STEP = 7, TENSOR_BYTES = 512 };

static ms_dry_t *dry;
static struct ms_budget budget;
static ms_pool_t *pool;
static ms_arenas_t *arenas;
static _Atomic uint32_t owner_of[UNITS]; /* by unit of 512 bytes from the first address seen */
static _Atomic ms_addr_t base;
static _Atomic unsigned errors;
static _Atomic uint64_t served;

static void wrong(const char *what)
{
    if (atomic_fetch_add(&errors, 1) < 5) {
        (void)fprintf(stderr, "stress_pool: %s\n", what);
    }
}

static void see_event(void *ctx, const struct ms_event *event)
{
    (void)ctx;
    if (event->kind == MS_EVENT_NONE || event->kind >= MS_EVENT_KIND_COUNT) {
        wrong("an event makes no sense");
    }
}

struct worker {
    uint64_t rounds, state;
    ms_stream_t stream;
    struct ms_block_info held[HELD];
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->state = worker->state * 6364136223846793005u + 1442695040888963407u;
    return (worker->state >> 33) % below;
}

/* Marks or clears what a thread holds; two threads that hold one byte meet here. */
static void stamp(const struct ms_block_info *block, uint32_t from, uint32_t to)
{
    ms_addr_t none = 0;
    (void)atomic_compare_exchange_strong(&base, &none, block->addr / (1 << 30) * (1 << 30));
    uint64_t first = (block->addr - atomic_load(&base)) / 512;
    for (uint64_t unit = 0; unit < (block->bytes + 511) / 512; unit += STAMP_STEP) {
        uint32_t expected = from;
        if (first + unit >= UNITS) {
            wrong("addresses run away");
            return;
        }
        if (!atomic_compare_exchange_strong(&owner_of[first + unit], &expected, to)) {
            wrong("two threads hold the same bytes");
            return;
        }
    }
}

static void take(struct worker *worker, struct ms_block_info *slot)
{
    uint64_t kib = draw(worker, 20) == 0 ? draw(worker, 6000) : draw(worker, 200);
    struct ms_request request = {.bytes = kib * KIB + 1,
                                 .stream = draw(worker, 3) == 0 ? MS_STREAM_DEVICE : worker->stream,
                                 .may_wait = draw(worker, 2) == 0};
    if (ms_pool_alloc(pool, &request, slot) != MS_OK) {
        slot->addr = 0;
        return;
    }
    atomic_fetch_add(&served, 1);
    stamp(slot, 0, (uint32_t)worker->stream);
    (void)ms_dry_work(dry, worker->stream, slot->id, slot->addr, slot->bytes, draw(worker, 1000));
    if (ms_arenas_born(arenas, slot->addr, TENSOR_BYTES, 1, UINT64_MAX) != MS_OK) {
        wrong("a birth is refused");
    }
}

static void give(struct worker *worker, struct ms_block_info *slot, ms_stream_t stream)
{
    if (ms_arenas_died(arenas, slot->addr, TENSOR_BYTES, UINT64_MAX) != MS_OK) {
        wrong("a death is refused");
    }
    stamp(slot, (uint32_t)worker->stream, 0);
    if (ms_pool_free(pool, slot->addr, stream) != MS_OK) {
        wrong("a free is refused");
    }
    slot->addr = 0;
}

static void *churn(void *argument)
{
    struct worker *worker = argument;
    for (uint64_t round = 0; round < worker->rounds; round++) {
        struct ms_block_info *slot = &worker->held[draw(worker, HELD)];
        if (slot->addr != 0) {
            give(worker, slot, draw(worker, 3) == 0 ? MS_STREAM_DEVICE : worker->stream);
        } else {
            take(worker, slot);
        }
        ms_dry_advance(dry, 100);
        if (draw(worker, 500) == 0) {
            (void)ms_pool_trim(pool, draw(worker, 16 * MIB));
        }
        if (draw(worker, 2000) == 0 && !ms_pool_is_valid(pool, NULL, 0)) {
            wrong("the books are wrong");
        }
        if (atomic_load(&budget.charged_bytes) > CAP_BYTES) {
            wrong("the cap is passed");
        }
    }
    for (int k = 0; k < HELD; k++) {
        if (worker->held[k].addr != 0) {
            give(worker, &worker->held[k], worker->stream);
        }
    }
    return NULL;
}

static bool set_up(void)
{
    struct ms_dry_config device = {.granule_bytes = GRANULE, .total_bytes = 64 * MIB};
    struct ms_event_sink sink = {.emit = see_event};
    if (ms_dry_create(&device, &dry) != MS_OK) {
        return false;
    }
    ms_budget_init(&budget, CAP_BYTES);
    struct ms_pool_config config = {
        .ops = ms_dry_ops(dry), .budget = &budget, .sink = sink, .wait_limit_ns = 100000};
    return ms_pool_create(&config, &pool) == MS_OK &&
           ms_arenas_create(0, pool, sink, &arenas) == MS_OK;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    static struct worker worker[THREADS];
    pthread_t thread[THREADS];
    unsigned started = 0;
    if (rounds == 0 || !set_up()) {
        (void)fprintf(stderr, "usage: stress_pool [ROUNDS]\n");
        return 2;
    }
    for (; started < THREADS; started++) {
        struct worker *one = &worker[started];
        *one = (struct worker){.rounds = rounds, .state = started + 1, .stream = started + 1};
        if (ms_dry_stream_create(dry, one->stream) != MS_OK ||
            pthread_create(&thread[started], NULL, churn, one) != 0) {
            wrong("a thread does not start");
            break;
        }
    }
    for (unsigned k = 0; k < started; k++) {
        pthread_join(thread[k], NULL);
    }
    char why[256] = "";
    if (!ms_pool_is_valid(pool, why, sizeof(why)) ||
        !ms_arenas_is_valid(arenas, why, sizeof(why))) {
        wrong(why);
    }
    if (ms_dry_violation(dry) != NULL) {
        wrong(ms_dry_violation(dry));
    }
    struct ms_pool_stats stats;
    ms_pool_stats(pool, &stats);
    if (stats.live_blocks != 0 || stats.allocations != atomic_load(&served) ||
        atomic_load(&budget.peak_charged_bytes) > CAP_BYTES) {
        wrong("the sums are wrong at the end");
    }
    printf("%lu allocations by %d threads, %lu chunks moved, %u errors\n",
           (unsigned long)stats.allocations, THREADS, (unsigned long)stats.chunks_moved,
           atomic_load(&errors));
    ms_arenas_destroy(arenas);
    ms_pool_destroy(pool, true);
    ms_dry_destroy(dry);
    return atomic_load(&errors) == 0 ? 0 : 1;
}
