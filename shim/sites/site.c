/* SPDX-License-Identifier: Apache-2.0 */
/* Captures a call site: the stacks, one hash over them, a look-up without a lock. Only a new stack,
 * or code that may have changed since, takes the slow path. */
#include "shim/sites/site.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "shim/process/guard.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sites/index.h"
#include "shim/sites/intern.h"
#include "shim/sites/sample.h"
#include "shim/sites/tags.h"
#include "shim/tables/options.h"

#define SITES_MAX 1000000u

/* What identifies a site, captured on this thread. */
struct stack {
    struct ms_native_stack native;
    struct ms_python_stack python;
    uint32_t tag;
    uint32_t thread, flags; /* as in struct ms_site_definition */
    uint64_t hash;          /* set by find() */
};

struct known_site {
    uint32_t native, python, tag;
    uint8_t thread;
    bool optimizers; /* see ms_site_is_optimizers */
    uint16_t flags;
    /* The generation of the process's modules under which its addresses were last resolved. Under
     * another one, the site is not the stack's. Cut to 32 bits. */
    _Atomic uint32_t generation;
};

MS_HOT_DATA static _Atomic bool ready;
static struct ms_pages sites; /* struct known_site, by id; written under the lock */
static struct ms_site_index site_index = {.shared = true};
static _Atomic uint32_t site_count;     /* written under the lock, after the site */
static _Atomic bool full;               /* no new sites: no room here, or in the trace */
static _Atomic uint32_t sampled_out_id; /* 0: not recorded yet */

void ms_sites_prepare(void)
{
    const enum ms_stacks_mode mode = ms_options()->stacks;
    if (!ms_options()->trace || atomic_load_explicit(&ready, memory_order_acquire)) {
        return;
    }
    if (mode == MS_STACKS_NATIVE || mode == MS_STACKS_FULL) {
        ms_native_prepare();
        const char *lacks = ms_native_refusal();
        if (lacks != NULL) {
            MS_LOG_ONCE(MS_LOG_INFO, "%s", lacks);
        }
    }
    ms_intern_lock();
    if (!atomic_load_explicit(&ready, memory_order_relaxed) && ms_intern_open() &&
        ms_pages_reserve(&sites, (SITES_MAX + 1) * sizeof(struct known_site) + (64u << 10))) {
        atomic_store_explicit(&ready, true, memory_order_release);
    }
    ms_intern_unlock();
}

/* --- Capture ---------------------------------------------------------------------------------- */

/* PyTorch names its workers pt_autograd_0, pt_autograd_1, ... when they start. */
static bool is_autograd_worker(void)
{
    static _Thread_local __attribute__((tls_model("initial-exec"))) enum {
        NOT_READ,
        NO,
        YES
    } known;
    if (__builtin_expect(known == NOT_READ, 0)) {
        char name[16] = "";
        known = prctl(PR_GET_NAME, name) == 0 && strncmp(name, "pt_autograd", 11) == 0 ? YES : NO;
    }
    return known == YES;
}

static _Atomic uint32_t lenders;
static _Atomic uint32_t lent_node;

static void borrow(struct ms_python_stack *python)
{
    if (atomic_load_explicit(&lenders, memory_order_acquire) == 1) {
        python->node = atomic_load_explicit(&lent_node, memory_order_acquire);
        python->hash = python->node;
    }
}

static uint32_t python_flags(const struct ms_python_stack *stack)
{
    return (stack->cut ? MS_SITE_PYTHON_CUT : 0u) | (stack->lost ? MS_SITE_PYTHON_LOST : 0u);
}

static uint32_t native_flags(const struct ms_native_stack *stack)
{
    return (stack->cut ? MS_SITE_NATIVE_CUT : 0u) | (stack->lost ? MS_SITE_NATIVE_LOST : 0u);
}

static uint32_t thread_of(const struct stack *stack)
{
    if (is_autograd_worker()) {
        return MS_THREAD_BACKWARD;
    }
    return stack->python.count != 0 ? MS_THREAD_PYTHON : MS_THREAD_OTHER;
}

/* All but the native stack. */
static inline void look_around(const struct ms_options *options, struct stack *stack)
{
    const enum ms_stacks_mode mode = options->stacks;
    /* Field by field: clearing the whole struct takes longer than recognizing a known stack. */
    stack->tag = ms_tag_current();
    if (mode == MS_STACKS_PYTHON || mode == MS_STACKS_FULL) {
        ms_python_recall(options->stack_depth, &stack->python);
        if (__builtin_expect(stack->python.count == 0, 0)) {
            borrow(&stack->python);
        }
    } else {
        stack->python = (struct ms_python_stack){0};
    }
    stack->thread = mode != MS_STACKS_OFF ? thread_of(stack) : 0;
    stack->flags = python_flags(&stack->python);
}

static bool takes_native(const struct ms_options *options)
{
    return options->stacks == MS_STACKS_NATIVE || options->stacks == MS_STACKS_FULL;
}

/* --- Sites ------------------------------------------------------------------------------------ */

static struct known_site *site_at(uint32_t id)
{
    return &((struct known_site *)sites.base)[id];
}

/* A known stack has the node that was found for it before. */
static bool is_native(uint32_t node, const struct ms_native_stack *stack)
{
    if (node != 0 && stack->note != NULL && stack->note->node == node) {
        return true;
    }
    const bool is = ms_intern_is_native(node, stack);
    if (is && stack->note != NULL) {
        stack->note->node = node;
    }
    return is;
}

/* Compares what a site has besides its stacks. */
static inline bool is_around(const struct known_site *site, const struct stack *stack)
{
    return site->tag == stack->tag && site->thread == stack->thread &&
           site->flags == stack->flags &&
           atomic_load_explicit(&site->generation, memory_order_acquire) ==
               (uint32_t)stack->native.generation;
}

static uint32_t find(struct stack *stack)
{
    uint32_t id;
    stack->hash = ms_mix(ms_mix(stack->native.hash, ms_python_hash(&stack->python)),
                         (uint64_t)stack->tag << 32 | stack->thread << 16 | stack->flags);
    struct ms_probe probe = ms_probe(&site_index, stack->hash);
    while ((id = ms_probe_next(&probe)) != 0) {
        const struct known_site *site = site_at(id);
        if (is_around(site, stack) && is_native(site->native, &stack->native) &&
            ms_intern_is_python(site->python, &stack->python)) {
            if (stack->native.note != NULL) {
                stack->native.note->site = id;
            }
            break;
        }
    }
    return id;
}

/* Adds a site, and records it in the trace; 0: no room. The caller holds the lock. */
static uint32_t add(const struct known_site *site, uint64_t hash, ms_trace_t *trace)
{
    const uint32_t id = atomic_load_explicit(&site_count, memory_order_relaxed) + 1;
    const struct ms_site_definition recorded = {.id = id,
                                                .native = site->native,
                                                .python = site->python,
                                                .tag = site->tag,
                                                .thread = site->thread,
                                                .flags = site->flags};
    if (id > SITES_MAX || !ms_pages_reach(&sites, (id + 1) * sizeof(*site)) ||
        !ms_trace_define(trace, MS_DEFINE_SITE, &recorded, sizeof(recorded))) {
        return 0;
    }
    *site_at(id) = *site;
    atomic_store_explicit(&site_count, id, memory_order_release);
    return ms_index_add(&site_index, hash, id) ? id : 0;
}

/* The site with the same nodes: resolved again under another generation, the stack still has
 * these. */
static uint32_t find_again(const struct known_site *wanted, uint64_t hash)
{
    struct ms_probe probe = ms_probe(&site_index, hash);
    uint32_t id;
    while ((id = ms_probe_next(&probe)) != 0) {
        struct known_site *site = site_at(id);
        if (site->native == wanted->native && site->python == wanted->python &&
            site->tag == wanted->tag && site->thread == wanted->thread &&
            site->flags == wanted->flags) {
            atomic_store_explicit(&site->generation, wanted->generation, memory_order_release);
            break;
        }
    }
    return id;
}

/* The caller holds the lock. */
static uint32_t meet_locked(const struct stack *stack, const struct ms_stack_modules *modules,
                            ms_trace_t *trace) MS_REQUIRES(*MS_LOCK(SITES))
{
    struct known_site site = {.tag = stack->tag,
                              .thread = (uint8_t)stack->thread,
                              .flags = (uint16_t)stack->flags,
                              .generation = (uint32_t)stack->native.generation};
    if (!ms_intern_native(&stack->native, modules, trace, &site.native) ||
        !ms_intern_python(&stack->python, trace, &site.python)) {
        return 0;
    }
    const uint32_t id = find_again(&site, stack->hash);
    if (id != 0) {
        return id;
    }
    site.optimizers = ms_intern_is_optimizers(site.python);
    return add(&site, stack->hash, trace);
}

static void say_full(void)
{
    atomic_store_explicit(&full, true, memory_order_relaxed);
    MS_LOG_ONCE(MS_LOG_WARN, "there is no room for more call sites: memory that is asked for from "
                             "new places has no call site in the report");
}

static __attribute__((noinline, cold)) uint32_t meet(const struct stack *stack, ms_trace_t *trace)
{
    struct ms_stack_modules modules;
    if (atomic_load_explicit(&full, memory_order_relaxed)) {
        return 0;
    }
    const int saved_errno = errno;
    const char *python_lacks = ms_python_refusal();
    if (python_lacks != NULL) {
        MS_LOG_ONCE(MS_LOG_WARN, "%s", python_lacks);
    }
    ms_intern_modules(&stack->native, trace, &modules);
    ms_intern_lock();
    const uint32_t id = meet_locked(stack, &modules, trace);
    ms_intern_unlock();
    if (id == 0) {
        say_full();
    }
    errno = saved_errno;
    return id;
}

bool ms_site_is_optimizers(uint32_t site)
{
    return site != 0 && site <= atomic_load_explicit(&site_count, memory_order_acquire) &&
           site_at(site)->optimizers;
}

bool ms_site_lend(void)
{
    const struct ms_options *options = ms_options();
    const bool python = options->stacks == MS_STACKS_PYTHON || options->stacks == MS_STACKS_FULL;
    ms_trace_t *trace = ms_session_trace();
    struct ms_python_stack stack;
    uint32_t node = 0;
    if (!python || trace == NULL || !atomic_load_explicit(&ready, memory_order_acquire)) {
        return false;
    }
    ms_python_capture(options->stack_depth, &stack);
    if (stack.count == 0) {
        return false;
    }
    ms_intern_lock();
    const bool known = ms_intern_python(&stack, trace, &node);
    ms_intern_unlock();
    if (!known) {
        return false;
    }
    ms_session_emit(&(struct ms_event){.kind = MS_EVENT_CALL, .id = node});
    atomic_store_explicit(&lent_node, node, memory_order_release);
    atomic_fetch_add_explicit(&lenders, 1, memory_order_acq_rel);
    return true;
}

void ms_site_lend_end(void)
{
    atomic_fetch_sub_explicit(&lenders, 1, memory_order_acq_rel);
}

/* --- Sampling --------------------------------------------------------------------------------- */

/* The site for all allocations that sampling skips. It is recorded before any other, and so is the
 * fact of sampling. */
static uint32_t sampled_out(uint64_t mean_bytes, ms_trace_t *trace)
{
    uint32_t id = atomic_load_explicit(&sampled_out_id, memory_order_acquire);
    if (__builtin_expect(id != 0, 1)) {
        return id;
    }
    const int saved_errno = errno;
    ms_intern_lock();
    id = atomic_load_explicit(&sampled_out_id, memory_order_relaxed);
    if (id == 0) {
        const struct ms_sampling_definition recorded = {mean_bytes};
        const struct known_site site = {.flags = MS_SITE_SAMPLED_OUT};
        id = ms_trace_define(trace, MS_DEFINE_SAMPLING, &recorded, sizeof(recorded))
                 ? add(&site, ms_mix(0, MS_SITE_SAMPLED_OUT), trace)
                 : 0;
        atomic_store_explicit(&sampled_out_id, id, memory_order_release);
    }
    ms_intern_unlock();
    errno = saved_errno;
    return id;
}

/* Where the site is not the one that the native stack had last. note: as ms_native_recall gave
 * it. */
static __attribute__((noinline)) uint32_t capture_otherwise(const struct ms_options *options,
                                                            const struct ms_step_at *call,
                                                            struct ms_native_note *note,
                                                            struct stack *stack)
{
    ms_trace_t *trace = ms_session_trace();
    if (trace == NULL) {
        return 0;
    }
    if (note != NULL) {
        ms_native_recalled(note, stack->native.generation, &stack->native);
    } else if (takes_native(options)) {
        ms_native_capture_from(call, options->stack_depth, &stack->native);
    } else {
        stack->native = (struct ms_native_stack){0};
    }
    stack->flags |= native_flags(&stack->native);
    if (stack->native.count == 0 && stack->python.count == 0 && stack->tag == 0 &&
        stack->thread != MS_THREAD_BACKWARD) {
        return 0;
    }
    uint32_t id = find(stack);
    if (__builtin_expect(id == 0, 0)) {
        id = meet(stack, trace);
    }
    if (id != 0 && stack->python.frames != NULL) {
        ms_python_remember(&stack->python, site_at(id)->python);
    }
    return id;
}

/* Whether sampling takes this allocation. If not, *none is its site. */
static __attribute__((noinline)) bool is_sampled(const struct ms_options *options, uint64_t bytes,
                                                 uint32_t *none)
{
    ms_trace_t *trace = ms_session_trace();
    *none = trace != NULL ? sampled_out(options->sample_bytes, trace) : 0;
    return *none != 0 && ms_sample_takes(bytes, options->sample_bytes);
}

MS_HOT uint32_t ms_site_capture(uint64_t bytes)
{
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        return 0; /* there is no trace */
    }
    const struct ms_options *options = ms_options();
    const struct ms_step_at call = {(uintptr_t)ms_guard.caller, ms_guard.sp, ms_guard.bp};
    struct ms_native_note *note = NULL;
    struct stack stack;
    uint32_t none;
    if (options->sample_bytes != 0) {
        if (!is_sampled(options, bytes, &none)) {
            return none;
        }
    } else if (options->stacks == MS_STACKS_OFF && ms_tag_current() == 0) {
        return 0;
    }
    look_around(options, &stack);
    if (takes_native(options)) {
        note = ms_native_recall(&call, options->stack_depth, &stack.native.generation);
    }
    if (__builtin_expect(note != NULL && note->site != 0, 1)) {
        const struct known_site *site = site_at(note->site);
        if (is_around(site, &stack) && ms_intern_is_python(site->python, &stack.python)) {
            if (stack.python.frames != NULL) {
                ms_python_remember(&stack.python, site->python);
            }
            return note->site;
        }
    }
    return capture_otherwise(options, &call, note, &stack);
}
