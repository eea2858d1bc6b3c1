/* SPDX-License-Identifier: Apache-2.0 */
/* A program that does what programs do, at random and all of it at once, and knows every byte.
 *
 * Threads with streams on several devices write, copy and check pages of their blocks, among them
 * copies between devices, captured graphs and work whose stream is destroyed while it is queued.
 * Other threads fork and take the devices' use. All of it is drawn from the seed; the surroundings
 * (memory, cap, delays) are set by whoever starts it. A wrong byte, a use of a device above the
 * limit, or no progress for a minute ends the program with a line that says so.
 *
 *   torture_job SEED OPERATIONS DEVICES LIVE_MIB LIMIT_MIB [FEATURE ...]
 *
 * OPERATIONS: of all threads together. LIVE_MIB: most alive in all threads together. LIMIT_MIB:
 * most that the process may use of one device; 0: nobody looks. Features: peers, captures, streams
 * (they come and go), forks, fails (calls of the driver fail) or fails=FUNCTION. Ends with a line
 * of JSON. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"
#include "simgpu.h"

enum {
    THREADS_MAX = 4,
    DEVICES_MAX = 4,
    STREAMS = 4, /* of a thread, each on one device */
    SLOTS = 6,
    GRAPHS = 2,
    GRAPH_COPIES = 3,
    BLOCKS = 512, /* of a thread */
    PAGE_BYTES = 64 * 1024,
    PAGE_WORDS = PAGE_BYTES / 4,
    PAGES_MAX = 64,
    FAIL_EVERY = 25,
    STUCK_S = 60
};

static struct driver cu;
static CUcontext contexts[DEVICES_MAX];
static unsigned devices = 1, threads = 1;
static uint64_t most_pages; /* alive in a thread */
static uint64_t limit_bytes;
static bool peers, captures, streams_go, forks, fails;
static unsigned long operations_each;
static const char *failing; /* the one function whose calls fail; null: any */
static _Atomic bool over;
static _Atomic uint64_t progress, checked, refused, failed, forked, replayed, crossed;

struct block {
    CUdeviceptr at;
    unsigned pages, device;
    unsigned stream; /* in whose order it is */
    bool by_stream;  /* of cuMemAllocAsync */
    bool in_graph;   /* a graph copies from or to it: it stays */
    uint32_t content[PAGES_MAX];
};

struct stream {
    CUstream handle;
    CUevent passed;
    unsigned device;
};

/* A page on its way from or to the host. */
struct slot {
    uint32_t *host;
    CUevent passed[DEVICES_MAX];
    unsigned device; /* of the event that was recorded */
    bool busy, check;
    uint32_t content;
};

struct page {
    unsigned block, page;
};

/* Copies within one stream's device, replayed as the program likes. */
struct graph {
    CUgraphExec exec;
    unsigned stream, copies;
    struct page to[GRAPH_COPIES], from[GRAPH_COPIES];
};

struct worker {
    pthread_t thread;
    uint64_t seed;
    uint64_t pages;
    struct stream streams[STREAMS];
    struct graph graphs[GRAPHS];
    struct slot slots[SLOTS];
    struct block blocks[BLOCKS];
    unsigned number, count;
    unsigned next_slot;
    unsigned graph_count;
};

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
    if (result != 0 && !fails) {
        (void)fprintf(stderr, "torture: %s gave %d\n", call, result);
        end();
    }
    failed += result != 0;
    return result == 0;
}
#define DONE(call) done((int)(call), #call)

/* What has to happen sooner or later, or nothing more can be checked. */
#define INSIST(call)    \
    while (!DONE(call)) \
    continue

static unsigned draw(struct worker *self, unsigned below)
{
    return (unsigned)(next_random(&self->seed) % below);
}

static uint32_t word_of(uint32_t content, unsigned word)
{
    return content + word * 2654435761u;
}

/* ---- pages on their way ------------------------------------------------------------------------
 */

static void settle(struct slot *slot)
{
    if (!slot->busy) {
        return;
    }
    INSIST(cu.cuEventSynchronize(slot->passed[slot->device]));
    slot->busy = false;
    for (unsigned i = 0; slot->check && i < PAGE_WORDS; i++) {
        if (slot->host[i] != word_of(slot->content, i)) {
            (void)fprintf(stderr, "torture: word %u of a page is %08x, not %08x\n", i,
                          slot->host[i], word_of(slot->content, i));
            end();
        }
    }
    checked += slot->check;
}

static struct slot *take_slot(struct worker *self)
{
    struct slot *slot = &self->slots[self->next_slot++ % SLOTS];
    settle(slot);
    return slot;
}

/* What was queued for the slot has passed when its event has. */
static void queue_slot(struct slot *slot, const struct stream *stream, bool check, uint32_t content)
{
    slot->busy = true;
    slot->check = check;
    slot->content = content;
    slot->device = stream->device;
    INSIST(cu.cuEventRecord(slot->passed[stream->device], stream->handle));
}

static CUdeviceptr page_at(const struct block *block, unsigned page)
{
    return block->at + (CUdeviceptr)page * PAGE_BYTES;
}

/* Everything about the block that is queued elsewhere comes before what this stream does next. */
static const struct stream *follow(struct worker *self, struct block *block, unsigned which)
{
    const struct stream *stream = &self->streams[which];
    if (block->stream != which) {
        const struct stream *before = &self->streams[block->stream];
        INSIST(cu.cuEventRecord(before->passed, before->handle));
        INSIST(cu.cuStreamWaitEvent(stream->handle, before->passed, 0));
        block->stream = which;
    }
    return stream;
}

/* A stream of the block's own device. */
static const struct stream *at_home(struct worker *self, struct block *block)
{
    unsigned which = block->stream;
    while (self->streams[which].device != block->device) {
        which = (which + 1) % STREAMS;
    }
    return follow(self, block, which);
}

static void check_page(struct worker *self, struct block *block, unsigned page)
{
    struct slot *slot = take_slot(self);
    const struct stream *stream = at_home(self, block);
    memset(slot->host, 0xa5, PAGE_BYTES);
    bool queued =
        DONE(cu.cuMemcpyDtoHAsync(slot->host, page_at(block, page), PAGE_BYTES, stream->handle));
    queue_slot(slot, stream, queued, block->content[page]);
}

static void write_page(struct worker *self, struct block *block, unsigned page)
{
    struct slot *slot = take_slot(self);
    const struct stream *stream = at_home(self, block);
    uint32_t content = (uint32_t)next_random(&self->seed);
    for (unsigned i = 0; i < PAGE_WORDS; i++) {
        slot->host[i] = word_of(content, i);
    }
    if (DONE(cu.cuMemcpyHtoDAsync(page_at(block, page), slot->host, PAGE_BYTES, stream->handle))) {
        block->content[page] = content;
    }
    queue_slot(slot, stream, false, 0);
}

/* On the stream of the target or of the source, whichever comes. */
static void copy_page(struct worker *self, struct block *to, unsigned at, struct block *from,
                      unsigned page)
{
    if ((to == from && at == page) || (to->device != from->device && !peers)) {
        return;
    }
    const struct stream *stream = at_home(self, draw(self, 2) == 0 ? to : from);
    (void)follow(self, to, (unsigned)(stream - self->streams));
    (void)follow(self, from, (unsigned)(stream - self->streams));
    CUresult result;
    if (to->device != from->device) {
        crossed++;
        result = cu.cuMemcpyPeerAsync(page_at(to, at), contexts[to->device], page_at(from, page),
                                      contexts[from->device], PAGE_BYTES, stream->handle);
    } else {
        result =
            cu.cuMemcpyDtoDAsync(page_at(to, at), page_at(from, page), PAGE_BYTES, stream->handle);
    }
    if (done((int)result, "a copy")) {
        to->content[at] = from->content[page];
    }
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

static unsigned stream_on(struct worker *self, unsigned device)
{
    unsigned which = draw(self, STREAMS);
    while (self->streams[which].device != device) {
        which = (which + 1) % STREAMS;
    }
    return which;
}

static void make_block(struct worker *self)
{
    struct block *block = &self->blocks[self->count];
    unsigned pages = 1 + draw(self, PAGES_MAX);
    *block = (struct block){.device = draw(self, devices), .by_stream = draw(self, 2) == 0};
    block->stream = stream_on(self, block->device);
    MUST(cu.cuCtxSetCurrent(contexts[block->device]));
    size_t bytes = (size_t)pages * PAGE_BYTES;
    CUresult result = block->by_stream ? cu.cuMemAllocAsync(&block->at, bytes,
                                                            self->streams[block->stream].handle)
                                       : cu.cuMemAlloc(&block->at, bytes);
    if (result != CUDA_SUCCESS) {
        refused++;
        (void)done(result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : (int)result, "an allocation");
        return;
    }
    block->pages = pages;
    self->pages += pages;
    self->count++;
    for (unsigned page = 0; page < pages; page++) {
        if (page % 8 == 0) {
            write_page(self, block, page);
        } else {
            copy_page(self, block, page, block, page - 1);
        }
        if (page > 0 && page % 8 != 0 && block->content[page] != block->content[page - 1]) {
            write_page(self, block, page); /* the copy was made to fail */
        }
    }
}

static void drop_block(struct worker *self, unsigned which)
{
    struct block *block = &self->blocks[which];
    if (block->in_graph) {
        return;
    }
    for (unsigned page = 0; page < block->pages; page++) {
        check_page(self, block, page);
    }
    const struct stream *order = at_home(self, block);
    MUST(cu.cuCtxSetCurrent(contexts[block->device]));
    bool freed = block->by_stream && draw(self, 4) != 0
                     ? DONE(cu.cuMemFreeAsync(block->at, order->handle))
                     : DONE(cu.cuMemFree(block->at));
    if (freed) {
        self->pages -= block->pages;
        unsigned last = --self->count;
        *block = self->blocks[last];
        for (unsigned g = 0; g < self->graph_count; g++) {
            for (unsigned c = 0; c < self->graphs[g].copies; c++) {
                struct page *ends[] = {&self->graphs[g].to[c], &self->graphs[g].from[c]};
                for (unsigned e = 0; e < 2; e++) {
                    ends[e]->block = ends[e]->block == last ? which : ends[e]->block;
                }
            }
        }
    }
}

/* ---- graphs ------------------------------------------------------------------------------------
 */

/* A few copies between blocks of one device, captured and kept. */
static void capture(struct worker *self)
{
    struct graph *graph = &self->graphs[self->graph_count];
    CUgraph captured = NULL;
    if (self->graph_count == GRAPHS || self->count < 2) {
        return;
    }
    unsigned device = self->blocks[draw(self, self->count)].device;
    *graph = (struct graph){.stream = stream_on(self, device)};
    for (unsigned tries = 0; tries < 16 && graph->copies < GRAPH_COPIES; tries++) {
        unsigned to = draw(self, self->count);
        unsigned from = draw(self, self->count);
        if (to != from && self->blocks[to].device == device &&
            self->blocks[from].device == device) {
            graph->to[graph->copies] = (struct page){to, draw(self, self->blocks[to].pages)};
            graph->from[graph->copies++] =
                (struct page){from, draw(self, self->blocks[from].pages)};
        }
    }
    CUstream stream = self->streams[graph->stream].handle;
    MUST(cu.cuCtxSetCurrent(contexts[device]));
    if (graph->copies == 0 ||
        !DONE(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))) {
        return;
    }
    bool whole = true;
    for (unsigned c = 0; c < graph->copies; c++) {
        const struct block *to = &self->blocks[graph->to[c].block];
        const struct block *from = &self->blocks[graph->from[c].block];
        whole =
            DONE(cu.cuMemcpyDtoDAsync(page_at(to, graph->to[c].page),
                                      page_at(from, graph->from[c].page), PAGE_BYTES, stream)) &&
            whole;
    }
    while (!DONE(cu.cuStreamEndCapture(stream, &captured)) && captured == NULL && whole) {
        whole = false; /* a capture whose end failed has ended all the same */
    }
    if (whole && captured != NULL &&
        DONE(cu.cuGraphInstantiateWithFlags(&graph->exec, captured, 0))) {
        for (unsigned c = 0; c < graph->copies; c++) {
            self->blocks[graph->to[c].block].in_graph = true;
            self->blocks[graph->from[c].block].in_graph = true;
        }
        self->graph_count++;
    }
    if (captured != NULL) {
        (void)DONE(cu.cuGraphDestroy(captured));
    }
}

static void replay(struct worker *self)
{
    if (self->graph_count == 0) {
        return;
    }
    struct graph *graph = &self->graphs[draw(self, self->graph_count)];
    for (unsigned c = 0; c < graph->copies; c++) {
        (void)follow(self, &self->blocks[graph->to[c].block], graph->stream);
        (void)follow(self, &self->blocks[graph->from[c].block], graph->stream);
    }
    MUST(cu.cuCtxSetCurrent(contexts[self->streams[graph->stream].device]));
    if (DONE(cu.cuGraphLaunch(graph->exec, self->streams[graph->stream].handle))) {
        replayed++;
        for (unsigned c = 0; c < graph->copies; c++) {
            self->blocks[graph->to[c].block].content[graph->to[c].page] =
                self->blocks[graph->from[c].block].content[graph->from[c].page];
        }
    }
}

static void forget_graphs(struct worker *self)
{
    for (unsigned g = 0; g < self->graph_count; g++) {
        INSIST(cu.cuGraphExecDestroy(self->graphs[g].exec));
    }
    self->graph_count = 0;
    for (unsigned b = 0; b < self->count; b++) {
        self->blocks[b].in_graph = false;
    }
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static void make_stream(struct stream *stream, unsigned device)
{
    stream->device = device;
    MUST(cu.cuCtxSetCurrent(contexts[device]));
    INSIST(cu.cuStreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING));
}

/* Another one takes its place, and goes on where it ends. Its work is still queued when it is
 * destroyed. */
static void renew_stream(struct worker *self, unsigned which)
{
    struct stream *stream = &self->streams[which];
    struct stream fresh = *stream;
    make_stream(&fresh, stream->device);
    INSIST(cu.cuEventRecord(stream->passed, stream->handle));
    INSIST(cu.cuStreamWaitEvent(fresh.handle, stream->passed, 0));
    INSIST(cu.cuStreamDestroy(stream->handle));
    *stream = fresh;
}

/* ---- threads -----------------------------------------------------------------------------------
 */

static void fail_something(struct worker *self)
{
    static const char *const functions[] = {"cuMemCreate",     "cuMemMap",
                                            "cuMemSetAccess",  "cuMemUnmap",
                                            "cuMemRelease",    "cuMemcpyAsync",
                                            "cuStreamQuery",   "cuStreamSynchronize",
                                            "cuEventRecord",   "cuEventQuery",
                                            "cuEventCreate",   "cuMemAddressReserve",
                                            "cuCtxGetDevice",  "cuStreamWaitEvent",
                                            "cuCtxGetCurrent", "cuDeviceGetMemPool",
                                            "cuMemGetInfo",    "cuStreamIsCapturing",
                                            "cuCtxRecordEvent"};
    static const int errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    const char *drawn = functions[draw(self, sizeof functions / sizeof *functions)];
    simgpu_fail_clear();
    (void)simgpu_fail(failing != NULL ? failing : drawn, 1 + draw(self, 4), errors[draw(self, 2)]);
}

static void operate(struct worker *self, bool low)
{
    uint64_t limit = low ? most_pages / 4 : most_pages;
    struct block *one = &self->blocks[draw(self, self->count + (self->count == 0))];
    struct block *other = &self->blocks[draw(self, self->count + (self->count == 0))];
    unsigned what = self->count == 0 ? 99 : draw(self, 100);
    bool room = self->count < BLOCKS && self->pages + PAGES_MAX <= limit;
    if (self->pages > limit || (what >= 86 && !room && self->count > 0)) {
        drop_block(self, (unsigned)(one - self->blocks));
    } else if (what < 40) {
        check_page(self, one, draw(self, one->pages));
    } else if (what < 50) {
        write_page(self, one, draw(self, one->pages));
    } else if (what < 78) {
        copy_page(self, one, draw(self, one->pages), other, draw(self, other->pages));
    } else if (what < 80 && captures) {
        capture(self);
    } else if (what < 85 && captures) {
        replay(self);
    } else if (what == 85 && streams_go) {
        renew_stream(self, draw(self, STREAMS));
    } else if (room) {
        make_block(self);
    }
}

static void *work(void *argument)
{
    struct worker *self = argument;
    for (unsigned long i = 0; i < operations_each; i++) {
        if (self->number == 0 && fails && i % FAIL_EVERY == 0) {
            fail_something(self);
        }
        bool low = i / 160 % 3 == 2;
        if (low && i % 160 == 0) {
            forget_graphs(self);
        }
        operate(self, low);
        progress++;
    }
    return NULL;
}

/* Children that do nothing with a device, and end in one of the ways there are. */
static void *fork_now_and_then(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    while (!over) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            free(malloc((size_t)(next_random(&seed) % 100000)));
            _exit(0);
        }
        int status = 0;
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
        forked++;
        progress++;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(&seed) % 3000000)}, NULL);
    }
    return NULL;
}

/* That the limit holds, and that something moves. */
static void *watch(void *argument)
{
    uint64_t last = 0;
    unsigned still_ms = 0;
    (void)argument;
    while (!over) {
        for (unsigned device = 0; device < devices && limit_bytes != 0; device++) {
            uint64_t used = simgpu_used_bytes((int)device);
            if (used > limit_bytes) {
                (void)fprintf(stderr,
                              "torture: device %u: %" PRIu64 " bytes used, of %" PRIu64 "\n",
                              device, used, limit_bytes);
                end();
            }
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        still_ms = progress == last ? still_ms + 1 : 0;
        last = progress;
        if (still_ms > STUCK_S * 1000) {
            (void)fprintf(stderr, "torture: nothing has moved for %d s\n", STUCK_S);
            abort(); /* exit() could wait for what does not move */
        }
    }
    return NULL;
}

static void prepare(struct worker *self, unsigned number, uint64_t seed)
{
    self->number = number;
    self->seed = seed * THREADS_MAX + number;
    for (unsigned i = 0; i < STREAMS && devices != 0; i++) {
        make_stream(&self->streams[i], i % devices);
        MUST(cu.cuEventCreate(&self->streams[i].passed, CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        void *host = NULL;
        MUST(cu.cuMemAllocHost(&host, PAGE_BYTES));
        self->slots[i].host = host;
        for (unsigned device = 0; device < devices; device++) {
            MUST(cu.cuCtxSetCurrent(contexts[device]));
            MUST(cu.cuEventCreate(&self->slots[i].passed[device], CU_EVENT_DISABLE_TIMING));
        }
    }
}

/* Everything that is left is as it was written. */
static void finish(struct worker *self)
{
    forget_graphs(self);
    while (self->count > 0) {
        drop_block(self, self->count - 1);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        settle(&self->slots[i]);
    }
}

/* What follows the feature's name among the arguments, "" for nothing; null: it is not there. */
static const char *feature(int argc, char **argv, const char *name)
{
    const char *rest = NULL;
    size_t length = strlen(name);
    for (int i = 6; i < argc; i++) {
        rest = strncmp(argv[i], name, length) == 0 ? argv[i] + length : rest;
    }
    return rest;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    pthread_t watcher;
    pthread_t forker = 0;
    EXPECT(argc >= 6);
    uint64_t seed = strtoull(argv[1], NULL, 10);
    uint64_t chance = seed;
    unsigned long operations = strtoul(argv[2], NULL, 10);
    devices = (unsigned)strtoul(argv[3], NULL, 10);
    EXPECT(devices >= 1 && devices <= DEVICES_MAX);
    threads = 1 + (unsigned)(next_random(&chance) % THREADS_MAX);
    operations_each = operations / threads;
    most_pages = strtoull(argv[4], NULL, 10) * MIB / PAGE_BYTES / threads;
    limit_bytes = strtoull(argv[5], NULL, 10) * MIB;
    peers = feature(argc, argv, "peers") != NULL;
    captures = feature(argc, argv, "captures") != NULL;
    streams_go = feature(argc, argv, "streams") != NULL;
    forks = feature(argc, argv, "forks") != NULL;
    cu = driver_open();
    MUST(cu.cuInit(0));
    for (unsigned i = 0; i < devices; i++) {
        CUdevice device;
        MUST(cu.cuDeviceGet(&device, (int)i));
        MUST(cu.cuDevicePrimaryCtxRetain(&contexts[i], device));
    }
    for (unsigned i = 0; i < threads; i++) {
        prepare(&workers[i], i, seed);
    }
    fails = feature(argc, argv, "fails") != NULL;
    failing = feature(argc, argv, "fails=");
    MUST(pthread_create(&watcher, NULL, watch, NULL));
    if (forks) {
        MUST(pthread_create(&forker, NULL, fork_now_and_then, &chance));
    }
    for (unsigned i = 0; i < threads; i++) {
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (unsigned i = 0; i < threads; i++) {
        MUST(pthread_join(workers[i].thread, NULL));
    }
    simgpu_fail_clear();
    fails = false;
    for (unsigned i = 0; i < threads; i++) {
        finish(&workers[i]);
    }
    over = true;
    MUST(pthread_join(watcher, NULL));
    if (forks) {
        MUST(pthread_join(forker, NULL));
    }
    (void)printf("{\"checked\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"failed\": %" PRIu64
                 ", \"forked\": %" PRIu64 ", \"replayed\": %" PRIu64 ", \"crossed\": %" PRIu64
                 "}\n",
                 checked, refused, failed, forked, replayed, crossed);
    return 0;
}
