/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks of open tags, one for each thread, and the count of steps. */
#include "shim/sites/tags.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/process/fork.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sites/tag_names.h"

struct tag_entry {
    uint32_t tag; /* that of the entry below if this one has no name of its own */
    uint16_t owner;
    uint8_t level; /* entries of the same owner below */
    bool named;
};

/* Initial-exec as in shim/driver/hook.h, and small for that reason. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    uint32_t depth;
    uint32_t recorded; /* how many entries, from the outermost on, the trace has */
    uint32_t above;    /* pushed beyond MS_TAG_DEPTH_MAX and still open */
    uint32_t thread;   /* gettid's; 0: no tag was pushed here yet */
    struct tag_entry entries[MS_TAG_DEPTH_MAX];
} here;

/* The number of threads with a tag << 32 | the tag of the only such thread. The tag is 0 while
 * several have one, and after that until the remaining thread pushes or pops again. */
static _Atomic uint64_t tagged;

MS_HOT_DATA static _Atomic bool pushed; /* some thread has pushed a tag since the process began */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ending; /* its destructor ends the tags that a thread left open */
static bool ends_seen;

static uint32_t innermost(void)
{
    return here.depth > 0 ? here.entries[here.depth - 1].tag : 0;
}

/* --- Trace ------------------------------------------------------------------------------------ */

static void record(enum ms_event_kind kind, uint32_t thread, uint32_t tag)
{
    ms_session_emit(&(struct ms_event){.kind = (uint8_t)kind, .id = thread, .aux = tag});
}

/* A tag that was pushed before there was a trace begins there at its thread's next call. */
static void record_open(void)
{
    if (ms_session_trace() == NULL) {
        return;
    }
    ms_tag_define(innermost());
    for (; here.recorded < here.depth; here.recorded++) {
        const struct tag_entry *entry = &here.entries[here.recorded];
        if (entry->named) {
            record(MS_EVENT_TAG_BEGIN, here.thread, entry->tag);
        }
    }
}

/* --- For threads without a tag -----------------------------------------------------------------
 */

/* This thread pushed its first tag (+1), ended its last one (-1), or changed others (0). */
static void publish(int change)
{
    uint64_t seen = atomic_load_explicit(&tagged, memory_order_relaxed);
    uint64_t next;
    do {
        uint64_t threads = (seen >> 32) + (uint64_t)(int64_t)change;
        next = threads << 32 | (threads == 1 ? innermost() : 0);
    } while (next != seen && !atomic_compare_exchange_weak_explicit(
                                 &tagged, &seen, next, memory_order_relaxed, memory_order_relaxed));
}

MS_HOT uint32_t ms_tag_current(void)
{
    if (__builtin_expect(!atomic_load_explicit(&pushed, memory_order_relaxed), 1)) {
        return 0;
    }
    if (here.depth > 0) {
        if (here.recorded != here.depth) {
            record_open();
        }
        return here.entries[here.depth - 1].tag;
    }
    uint32_t tag = (uint32_t)atomic_load_explicit(&tagged, memory_order_relaxed);
    if (tag != 0) {
        ms_tag_define(tag);
    }
    return tag;
}

/* --- Begin and end of threads and processes --------------------------------------------------- */

static void end_all(void *unused)
{
    (void)unused;
    while (here.depth > 0) {
        (void)ms_tag_pop(here.entries[here.depth - 1].owner);
    }
}

static uint32_t thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/* A child has this thread only. A child forked before the driver was used goes on like any other
 * process; for other children the session has no trace (fork in shim/process/session.h). */
static void in_child(void)
{
    here.thread = here.thread != 0 ? thread_id() : 0;
    atomic_store(&tagged, here.depth > 0 ? (uint64_t)1 << 32 | innermost() : 0);
}

static void watch(void)
{
    ends_seen = pthread_key_create(&ending, end_all) == 0;
    if (!ends_seen || !ms_fork_watch() || pthread_atfork(NULL, NULL, in_child) != 0) {
        MS_LOG_ONCE(MS_LOG_WARN, "out of memory: tags that a thread leaves open stay open");
    }
}

/* At the first push of a thread. */
static void enrol(void)
{
    (void)pthread_once(&once, watch);
    if (ends_seen) {
        (void)pthread_setspecific(ending, &here);
    }
    here.thread = thread_id();
}

/* --- Push and pop ------------------------------------------------------------------------------
 */

/* The owner's innermost entry, counted from 1; 0: none. */
static uint32_t innermost_of(uint16_t owner)
{
    uint32_t at = here.depth;
    while (at > 0 && here.entries[at - 1].owner != owner) {
        at--;
    }
    return at;
}

int ms_tag_push(uint16_t owner, const char *name, size_t bytes, uint32_t color)
{
    atomic_store_explicit(&pushed, true, memory_order_relaxed);
    uint32_t around = innermost_of(owner);
    int level = around > 0 ? here.entries[around - 1].level + 1 : 0;
    if (here.depth == MS_TAG_DEPTH_MAX) {
        return level + (int)here.above++;
    }
    if (here.thread == 0) {
        enrol();
    }
    uint32_t outer = innermost();
    uint32_t tag = ms_tag_name(outer, name, bytes, color);
    here.entries[here.depth++] = (struct tag_entry){tag, owner, (uint8_t)level, tag != outer};
    publish(here.depth == 1 ? 1 : 0);
    record_open();
    return level;
}

int ms_tag_pop(uint16_t owner)
{
    uint32_t at = innermost_of(owner);
    int level = at > 0 ? here.entries[at - 1].level : -1;
    if (here.above > 0) {
        return level + (int)here.above--;
    }
    if (at == 0) {
        return -1;
    }
    if (here.recorded != here.depth) {
        record_open();
    }
    const struct tag_entry ended = here.entries[at - 1];
    memmove(&here.entries[at - 1], &here.entries[at], (here.depth - at) * sizeof(ended));
    here.depth--;
    if (here.recorded >= at) {
        here.recorded--;
        if (ended.named) {
            record(MS_EVENT_TAG_END, here.thread, ended.tag);
        }
    }
    publish(here.depth == 0 ? -1 : 0);
    return level;
}

uint32_t ms_tag_start(const char *name, size_t bytes, uint32_t color)
{
    uint32_t tag = ms_tag_name(0, name, bytes, color);
    if (tag != 0) {
        ms_tag_define(tag);
        record(MS_EVENT_TAG_BEGIN, 0, tag);
    }
    return tag;
}

void ms_tag_end(uint32_t tag)
{
    if (tag != 0) {
        record(MS_EVENT_TAG_END, 0, tag);
    }
}

static _Atomic uint64_t steps[MS_STEP_SOURCE_COUNT];

void ms_step(enum ms_step_source source)
{
    uint64_t step = atomic_fetch_add_explicit(&steps[source], 1, memory_order_relaxed) + 1;
    ms_session_emit(&(struct ms_event){.kind = MS_EVENT_STEP, .id = step, .aux = source});
}

uint64_t ms_steps_recorded(void)
{
    uint64_t called = atomic_load_explicit(&steps[MS_STEP_CALLED], memory_order_relaxed);
    uint64_t ranges = atomic_load_explicit(&steps[MS_STEP_NVTX], memory_order_relaxed);
    return called > ranges ? called : ranges;
}
