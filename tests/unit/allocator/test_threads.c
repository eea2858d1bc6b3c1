/* Many threads on one pool: the cap, the books and the contents hold. Meant for the thread and the
 * address sanitizer as well. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

#include "allocator/arena.h"

enum { THREADS = 8, ROUNDS = 3000, HELD = 12 };

static struct rig *rig;
static _Atomic uint64_t owner_of[64 * 1024]; /* by 512-byte unit from base: who holds it */
static _Atomic ms_addr_t base;
static _Atomic unsigned errors;

/* The pool here has no sink that could be too small: events only need to be whole. */
static void count_event(void *ctx, const struct ms_event *event)
{
    (void)ctx;
    if (event->kind == MS_EVENT_NONE || event->kind >= MS_EVENT_KIND_COUNT) {
        atomic_fetch_add(&errors, 1);
    }
}

struct worker {
    uint64_t state;
    ms_stream_t stream;
    struct ms_block_info held[HELD];
};

static uint64_t draw(struct worker *worker)
{
    worker->state = worker->state * 6364136223846793005u + 1442695040888963407u;
    return worker->state >> 33;
}

/* Marks or clears what a thread holds; two threads that hold one byte meet here. */
static void stamp(const struct ms_block_info *block, uint64_t from, uint64_t to)
{
    ms_addr_t none = 0;
    (void)atomic_compare_exchange_strong(&base, &none, block->addr / (1 << 30) * (1 << 30));
    uint64_t first = (block->addr - atomic_load(&base)) / 512;
    for (uint64_t unit = 0; unit < (block->bytes + 511) / 512; unit += 7) {
        uint64_t expected = from;
        if (first + unit < sizeof(owner_of) / sizeof(owner_of[0]) &&
            !atomic_compare_exchange_strong(&owner_of[first + unit], &expected, to)) {
            atomic_fetch_add(&errors, 1);
        }
    }
}

static void *churn(void *argument)
{
    struct worker *worker = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct ms_block_info *slot = &worker->held[draw(worker) % HELD];
        if (slot->addr != 0) {
            stamp(slot, worker->stream, 0);
            ms_stream_t on = draw(worker) % 3 == 0 ? MS_STREAM_DEVICE : worker->stream;
            if (ms_pool_free(rig->pool, slot->addr, on) != MS_OK) {
                atomic_fetch_add(&errors, 1);
            }
            slot->addr = 0;
        } else {
            uint64_t kib = draw(worker) % 20 == 0 ? draw(worker) % 6000 : draw(worker) % 200;
            bool for_device = draw(worker) % 3 == 0;
            struct ms_request request = {.bytes = kib * KIB + 1,
                                         .stream = for_device ? MS_STREAM_DEVICE : worker->stream,
                                         .may_wait = draw(worker) % 2 == 0};
            if (ms_pool_alloc(rig->pool, &request, slot) == MS_OK) {
                stamp(slot, 0, worker->stream);
                (void)ms_dry_work(rig->dry, worker->stream, slot->id, slot->addr, slot->bytes,
                                  draw(worker) % 1000);
            } else {
                slot->addr = 0;
            }
        }
        ms_dry_advance(rig->dry, 100);
        if (draw(worker) % 500 == 0) {
            (void)ms_pool_trim(rig->pool, draw(worker) % (16 * MIB));
        }
        if (atomic_load(&rig->budget.charged_bytes) > 48 * MIB) {
            atomic_fetch_add(&errors, 1);
        }
    }
    for (int k = 0; k < HELD; k++) {
        if (worker->held[k].addr != 0) {
            stamp(&worker->held[k], worker->stream, 0);
            (void)ms_pool_free(rig->pool, worker->held[k].addr, worker->stream);
        }
    }
    return NULL;
}

Test(threads, eight_threads_under_a_tight_cap)
{
    static struct worker worker[THREADS];
    pthread_t thread[THREADS];
    rig = calloc(1, sizeof(*rig));
    struct ms_dry_config device = {.granule_bytes = GRANULE, .total_bytes = 64 * MIB};
    cr_assert_eq(ms_dry_create(&device, &rig->dry), MS_OK);
    ms_budget_init(&rig->budget, 48 * MIB);
    struct ms_pool_config config = {.ops = ms_dry_ops(rig->dry),
                                    .budget = &rig->budget,
                                    .sink = {.emit = count_event},
                                    .wait_limit_ns = 100000};
    cr_assert_eq(ms_pool_create(&config, &rig->pool), MS_OK);
    for (unsigned k = 0; k < THREADS; k++) {
        worker[k] = (struct worker){.state = k + 1, .stream = k + 1};
        cr_assert_eq(ms_dry_stream_create(rig->dry, k + 1), MS_OK);
    }
    for (unsigned k = 0; k < THREADS; k++) {
        cr_assert_eq(pthread_create(&thread[k], NULL, churn, &worker[k]), 0);
    }
    for (unsigned k = 0; k < THREADS; k++) {
        pthread_join(thread[k], NULL);
    }
    cr_assert_eq(atomic_load(&errors), 0);
    cr_assert_leq(atomic_load(&rig->budget.peak_charged_bytes), 48 * MIB);
    cr_assert_eq(rig_stats(rig).live_blocks, 0);
    cr_assert_gt(rig_stats(rig).allocations, 1000);
    rig_end(rig);
}

static ms_arenas_t *arenas;

static void *report_tensors(void *argument)
{
    uintptr_t k = (uintptr_t)argument;
    for (int round = 0; round < 20000; round++) {
        ms_addr_t addr = 0x10000000u + k * 0x1000000u + (uintptr_t)(round % 50) * 512;
        if (ms_arenas_born(arenas, addr, 512, 1, UINT64_MAX) != MS_OK ||
            ms_arenas_died(arenas, addr, 512, UINT64_MAX) != MS_OK) {
            atomic_fetch_add(&errors, 1);
        }
    }
    return NULL;
}

Test(threads, tensors_are_reported_from_many_threads)
{
    pthread_t thread[THREADS];
    struct ms_arenas_stats stats;
    cr_assert_eq(ms_arenas_create(0, NULL, (struct ms_event_sink){.emit = count_event}, &arenas),
                 MS_OK);
    for (uintptr_t k = 0; k < THREADS; k++) {
        cr_assert_eq(pthread_create(&thread[k], NULL, report_tensors, (void *)k), 0);
    }
    for (int k = 0; k < THREADS; k++) {
        pthread_join(thread[k], NULL);
    }
    ms_arenas_stats(arenas, &stats);
    cr_assert_eq(atomic_load(&errors), 0);
    cr_assert_eq(stats.births, (uint64_t)THREADS * 20000);
    cr_assert_eq(stats.live_tensors, 0);
    ms_arenas_destroy(arenas);
}

Test(threads, a_forked_child_finds_no_lock_held)
{
    struct rig *own = rig_make(GRANULE, 64 * MIB, 64 * MIB);
    (void)rig_alloc(own, MIB, 5);
    ms_pool_fork_prepare(own->pool);
    pid_t child = fork();
    if (child == 0) {
        ms_pool_fork_child(own->pool);
        struct ms_pool_stats stats;
        ms_pool_stats(own->pool, &stats);
        struct ms_block_info block;
        struct ms_request request = {.bytes = 100, .stream = 5};
        _exit(stats.live_blocks == 1 && ms_pool_alloc(own->pool, &request, &block) == MS_OK ? 0
                                                                                            : 1);
    }
    ms_pool_fork_parent(own->pool);
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    (void)rig_alloc(own, MIB, 5);
    rig_end(own);
}
