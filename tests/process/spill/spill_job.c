/* SPDX-License-Identifier: Apache-2.0 */
/* More memory alive than the cap allows, every byte of it known: threads write, copy and check
 * pages of their blocks in random order, all of it queued on the device and checked when it
 * arrives, while memory moves to the host and back beneath them. From time to time most of it is
 * freed, so that there is room for what was moved.
 *
 * Arguments: seed, operations a thread, most MiB alive in a thread, and "fail" to have calls of the
 * driver fail, one after the other, or "plain" for allocations by cuMemAlloc alone. Ends with a
 * line of JSON. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"
#include "simgpu.h"

enum {
    THREADS = 4,
    SLOTS = 6,
    BLOCKS = 1024, /* of a thread */
    PAGE_BYTES = 64 * 1024,
    PAGE_WORDS = PAGE_BYTES / 4,
    PAGES_MAX = 64, /* of a block */
    PHASE_OPERATIONS = 160,
    STEP_OPERATIONS = 20,
    LOW_PHASE = 3, /* each of so many phases is one with little memory */
    FAIL_OPERATIONS = 25
};

static struct driver cu;
static CUcontext context;
static unsigned long operations;
static uint64_t first_seed, most_pages; /* alive in a thread */
static bool failing, plain;
static pthread_barrier_t phases; /* all threads have much, or little */
static void (*step)(void);
static _Atomic uint64_t checked, refused, failed;

struct block {
    CUdeviceptr at;
    unsigned pages;
    uint32_t content[PAGES_MAX]; /* by which each page's words are known */
};

/* A page on its way from or to the host. */
struct slot {
    uint32_t *host;
    CUdeviceptr scratch; /* checked pages take their way over it */
    CUevent passed;
    bool busy, check;
    uint32_t content;
};

struct worker {
    pthread_t thread;
    uint64_t seed;
    CUstream stream;
    struct block blocks[BLOCKS];
    unsigned number, count;
    uint64_t pages;
    struct slot slots[SLOTS];
    unsigned next_slot;
};

static uint32_t word_of(uint32_t content, unsigned word)
{
    return content + word * 2654435761u;
}

/* What the device writes and reads is nothing that the thread sanitizer could judge: simgpu keeps
 * it from it, and to follow these words would take most of a run's time. */
__attribute__((no_sanitize("thread"))) static void fill(uint32_t *page, uint32_t content)
{
    for (unsigned i = 0; i < PAGE_WORDS; i++) {
        page[i] = word_of(content, i);
    }
}

/* PAGE_WORDS: all of them. */
__attribute__((no_sanitize("thread"))) static unsigned first_wrong(const uint32_t *page,
                                                                   uint32_t content)
{
    unsigned i = 0;
    while (i < PAGE_WORDS && page[i] == word_of(content, i)) {
        i++;
    }
    return i;
}

/* Threads may find something at once; one of them ends the program. */
static void end(void)
{
    static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&ending);
    exit(1);
}

/* Whether the call did what it does; it must, but where calls are made to fail. */
static bool done(int result, const char *call)
{
    if (result != 0 && !failing) {
        (void)fprintf(stderr, "%s gave %d\n", call, result);
        end();
    }
    failed += result != 0;
    return result == 0;
}
#define DONE(call) done((int)(call), #call)

static void settle(struct slot *slot)
{
    while (slot->busy && !DONE(cu.cuEventSynchronize(slot->passed))) {
    }
    if (slot->busy && slot->check) {
        unsigned wrong = first_wrong(slot->host, slot->content);
        if (wrong < PAGE_WORDS) {
            (void)fprintf(stderr, "word %u of a page is %08x, not %08x\n", wrong, slot->host[wrong],
                          word_of(slot->content, wrong));
            end();
        }
        checked++;
    }
    slot->busy = false;
}

static struct slot *take_slot(struct worker *self)
{
    struct slot *slot = &self->slots[self->next_slot++ % SLOTS];
    settle(slot);
    return slot;
}

/* What was queued for the slot has passed when its event has. */
static void queue_slot(struct worker *self, struct slot *slot, bool check, uint32_t content)
{
    slot->busy = true;
    slot->check = check;
    slot->content = content;
    while (!DONE(cu.cuEventRecord(slot->passed, self->stream))) {
    }
}

static CUdeviceptr page_at(const struct block *block, unsigned page)
{
    return block->at + (CUdeviceptr)page * PAGE_BYTES;
}

static bool copy(struct worker *self, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return DONE(cu.cuMemcpyDtoDAsync(to, from, bytes, self->stream));
}

static void check_page(struct worker *self, const struct block *block, unsigned page)
{
    struct slot *slot = take_slot(self);
    if (copy(self, slot->scratch, page_at(block, page), PAGE_BYTES)) {
        fill(slot->host, ~block->content[page]);
        bool queued =
            DONE(cu.cuMemcpyDtoHAsync(slot->host, slot->scratch, PAGE_BYTES, self->stream));
        queue_slot(self, slot, queued, block->content[page]);
    }
}

static void write_page(struct worker *self, struct block *block, unsigned page)
{
    struct slot *slot = take_slot(self);
    uint32_t content = (uint32_t)next_random(&self->seed);
    fill(slot->host, content);
    if (DONE(cu.cuMemcpyHtoDAsync(page_at(block, page), slot->host, PAGE_BYTES, self->stream))) {
        block->content[page] = content;
    }
    queue_slot(self, slot, false, 0);
}

static void copy_page(struct worker *self, struct block *to, unsigned at, const struct block *from,
                      unsigned page)
{
    if ((to != from || at != page) &&
        copy(self, page_at(to, at), page_at(from, page), PAGE_BYTES)) {
        to->content[at] = from->content[page];
    }
}

static void make_block(struct worker *self)
{
    struct block *block = &self->blocks[self->count];
    uint64_t draw = next_random(&self->seed);
    unsigned pages = 1 + (unsigned)(draw % PAGES_MAX);
    CUresult result =
        (plain || draw / 1024 % 2)
            ? cu.cuMemAlloc(&block->at, (size_t)pages * PAGE_BYTES)
            : cu.cuMemAllocAsync(&block->at, (size_t)pages * PAGE_BYTES, self->stream);
    if (result != CUDA_SUCCESS) {
        refused++;
        (void)done(failing ? 0 : (int)result, "an allocation");
        return;
    }
    block->pages = pages;
    self->pages += pages;
    self->count++;
    write_page(self, block, 0);
    for (unsigned page = 1; page < pages; page++) {
        copy_page(self, block, page, block, page - 1);
        if (block->content[page] != block->content[page - 1]) {
            write_page(self, block, page); /* the copy was made to fail */
        }
    }
}

static void drop_block(struct worker *self, unsigned which)
{
    struct block *block = &self->blocks[which];
    for (unsigned page = 0; page < block->pages; page++) {
        check_page(self, block, page);
    }
    bool freed = (plain || next_random(&self->seed) % 2)
                     ? DONE(cu.cuMemFree(block->at))
                     : DONE(cu.cuMemFreeAsync(block->at, self->stream));
    if (freed) {
        self->pages -= block->pages;
        *block = self->blocks[--self->count];
    }
}

static void fail_something(uint64_t *seed)
{
    static const char *const functions[] = {
        "cuMemCreate",      "cuMemMap",      "cuMemSetAccess", "cuMemUnmap",
        "cuMemRelease",     "cuMemcpyAsync", "cuStreamQuery",  "cuStreamSynchronize",
        "cuEventRecord",    "cuEventQuery",  "cuEventCreate",  "cuMemAddressReserve",
        "cuStreamWaitEvent"};
    static const int errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    uint64_t draw = next_random(seed);
    simgpu_fail_clear();
    MUST(simgpu_fail(functions[draw % (sizeof functions / sizeof *functions)], 1 + draw / 64 % 4,
                     errors[draw / 512 % 2]));
}

static void operate(struct worker *self, uint64_t limit_pages)
{
    uint64_t draw = next_random(&self->seed);
    struct block *one = &self->blocks[draw / 128 % (self->count + (self->count == 0))];
    struct block *other = &self->blocks[(draw >> 40) % (self->count + (self->count == 0))];
    unsigned what = self->count == 0 ? 99 : (unsigned)(draw % 100);
    bool room = self->count < BLOCKS && self->pages + PAGES_MAX <= limit_pages;
    if (self->pages > limit_pages || (what >= 90 && !room && self->count > 0)) {
        drop_block(self, (unsigned)(one - self->blocks));
    } else if (what < 50) {
        check_page(self, one, (unsigned)(draw / 4096 % one->pages));
    } else if (what < 60) {
        write_page(self, one, (unsigned)(draw / 4096 % one->pages));
    } else if (what < 90) {
        copy_page(self, one, (unsigned)(draw / 4096 % one->pages), other,
                  (unsigned)((draw >> 20) % other->pages));
    } else if (room) {
        make_block(self);
    }
}

static void *work(void *argument)
{
    struct worker *self = argument;
    MUST(cu.cuCtxSetCurrent(context));
    for (unsigned long i = 0; i < operations; i++) {
        unsigned long phase = i / PHASE_OPERATIONS;
        bool low = phase % LOW_PHASE == LOW_PHASE - 1;
        if (i % PHASE_OPERATIONS == 0) {
            (void)pthread_barrier_wait(&phases);
        }
        if (self->number == 0 && step != NULL && i % STEP_OPERATIONS == 0) {
            step();
        }
        if (self->number == 0 && failing && i % FAIL_OPERATIONS == 0) {
            fail_something(&self->seed);
        }
        /* Full at once when a phase of plenty begins. */
        while (!low && i % PHASE_OPERATIONS == 0 && self->count < BLOCKS &&
               self->pages + PAGES_MAX <= most_pages && refused < operations) {
            make_block(self);
        }
        operate(self, low ? most_pages / 4 : most_pages);
    }
    return NULL;
}

static void prepare(struct worker *self, unsigned number)
{
    self->number = number;
    self->seed = first_seed * THREADS + number;
    MUST(cu.cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SLOTS; i++) {
        void *host = NULL;
        MUST(cu.cuMemAllocHost(&host, PAGE_BYTES));
        self->slots[i].host = host;
        MUST(cu.cuMemAlloc(&self->slots[i].scratch, PAGE_BYTES));
        MUST(cu.cuEventCreate(&self->slots[i].passed, CU_EVENT_DISABLE_TIMING));
    }
}

/* Everything that is left is as it was written. */
static void finish(struct worker *self)
{
    while (self->count > 0) {
        drop_block(self, self->count - 1);
    }
    for (int i = 0; i < SLOTS; i++) {
        settle(&self->slots[i]);
    }
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    CUdevice device;
    EXPECT(argc == 4 || argc == 5);
    first_seed = strtoull(argv[1], NULL, 10);
    operations = strtoul(argv[2], NULL, 10);
    most_pages = strtoull(argv[3], NULL, 10) * MIB / PAGE_BYTES;
    bool fail = argc == 5 && strcmp(argv[4], "fail") == 0;
    plain = argc == 5 && strcmp(argv[4], "plain") == 0;
    *(void **)&step = dlsym(RTLD_DEFAULT, "memshim_step");
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    for (unsigned i = 0; i < THREADS; i++) {
        prepare(&workers[i], i);
    }
    failing = fail;
    MUST(pthread_barrier_init(&phases, NULL, THREADS));
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(workers[i].thread, NULL));
    }
    simgpu_fail_clear();
    failing = false;
    for (int i = 0; i < THREADS; i++) {
        finish(&workers[i]);
    }
    (void)printf("{\"checked\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"failed\": %" PRIu64 "}\n",
                 checked, refused, failed);
    return 0;
}
