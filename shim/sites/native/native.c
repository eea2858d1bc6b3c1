/* SPDX-License-Identifier: Apache-2.0 */
/* Walks stacks outwards, and reuses what the last walk of the thread found.
 *
 * The result of a walk from a frame outwards depends on four things: the frame's return address,
 * its stack pointer, its frame pointer if a frame further out needs it, and the stack words that
 * the walk reads (return addresses, and saved frame pointers that are still needed). If a frame
 * equals a remembered one in the first three, and those words are unchanged, then a walk would find
 * the remembered frames, whatever happened in between. So they are reused. Plain frames read no
 * other words; a frame of another kind, and all frames further in, are not remembered. Besides
 * these, a walk depends on the unwind tables: when a library is unloaded, everything is
 * forgotten. */
#include "shim/sites/native/native.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "shim/sites/native/modules.h"
#include "shim/sites/native/native_known.h"
#include "shim/sites/native/native_step.h"
#include "shim/sites/native/thread_memory.h"
#include "shim/sites/native/unwind_library.h"

#define OWN_FRAMES_MAX 32u /* frames of the shim on top */
#define OWN_RULES      8u
#define FRAMES_MAX     MS_STACK_DEPTH_MAX

/* A frame just walked. Slots are multiples of 8, so their lower bits can hold what else matters on
 * the way to the next frame. */
struct fresh_frame {
    struct ms_step_at at;
    uint64_t bp_slot; /* 0: the next frame has the same bp; with these flags: */
};
#define USES_BP   1u /* the next frame was found through bp */
#define BY_MORE   2u /* the step read more words than a place records */
#define SLOT_MASK (~UINT64_C(7))

/* A thread's memory of its last stack: frames [first, FRAMES_MAX), with the outermost at the end,
 * so that frames on top come and go without moving the others. */
struct native_memory {
    struct ms_thread_memory is;
    volatile bool busy; /* a capture is under way, which a signal may have interrupted */
    uint32_t first;     /* the first frame of the last stack */
    uint32_t kept;      /* frames from here on may be reused */
    uint64_t stamp;     /* the stamp under which they were learned */
    struct ms_own_stack stack;
    struct {
        uint64_t address;
        union ms_rule rule;
    } own[OWN_RULES]; /* rules of the shim's frames on top, in their last order */
    uint64_t addresses[FRAMES_MAX];
    uint64_t hashes[FRAMES_MAX];                  /* of the addresses from here on outwards */
    struct ms_stack_place places[FRAMES_MAX + 1]; /* the last one is a sentinel, further out than
                                                     any frame */
    struct fresh_frame fresh[FRAMES_MAX];
    struct ms_known known;
};

static _Thread_local __attribute__((tls_model("initial-exec"))) struct native_memory *mine;
static ms_thread_memories_t memories;

static uintptr_t own_text, own_text_bytes;

/* --- Life -------------------------------------------------------------------------------------
 */

/* The linker's name for the start of this library. */
extern const ElfW(Ehdr) own_header __asm__("__ehdr_start") __attribute__((visibility("hidden")));

static void find_own_text(void)
{
    const uintptr_t base = (uintptr_t)&own_header;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(base + own_header.e_phoff);
    for (int i = 0; i < own_header.e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && (segments[i].p_flags & PF_X) != 0) {
            own_text_bytes = segments[i].p_memsz;
            own_text = base + segments[i].p_vaddr;
        }
    }
}

static bool is_own(uint64_t address)
{
    return address - own_text < own_text_bytes;
}

void ms_native_prepare(void)
{
    find_own_text();
    ms_modules_prepare();
    (void)ms_unwind_library_open();
}

const char *ms_native_refusal(void)
{
    if (ms_unwind_library_is_open()) {
        return NULL;
    }
#if defined(__x86_64__)
    return "libunwind.so.8 was not found: native stacks end at the first frame that only it can "
           "step out of (a few hand-written functions)";
#else
    return "libunwind.so.8 was not found: no native stacks";
#endif
}

static struct native_memory *claim(void)
{
    struct native_memory *memory = ms_thread_memory_claim(&memories, sizeof(*memory));
    if (memory != NULL) {
        memory->busy = false;
        memory->first = memory->kept = FRAMES_MAX;
        memory->stack = (struct ms_own_stack){0};
        ms_known_forget(&memory->known);
        memory->places[FRAMES_MAX].sp = UINT64_MAX;
    }
    mine = memory;
    return memory;
}

static inline uint64_t add_to_hash(uint64_t hash, uint64_t address)
{
    hash = (hash ^ address) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const uint64_t *addresses, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = count; i > 0; i--) {
        hash = add_to_hash(hash, addresses[i - 1]);
    }
    return hash;
}

#if defined(__x86_64__)

/* The innermost frame from which on all words on the way outwards are unchanged. */
static uint32_t unchanged_from(const struct native_memory *memory, uint32_t innermost)
{
    uint32_t at = FRAMES_MAX - 1;
    while (at > innermost) {
        const struct ms_stack_place *outer = &memory->places[at], *inner = outer - 1;
        if (ms_word_at(outer->sp - 8) != memory->addresses[at] ||
            (inner->bp_slot != 0 && ms_word_at(inner->bp_slot) != outer->bp)) {
            break;
        }
        at--;
    }
    return at;
}

struct stack_walk {
    struct native_memory *memory;
    struct ms_step_at at;
    struct ms_stack_part part;
    uint64_t stamp;
    uint32_t valid; /* remembered frames from here on are unchanged; 0: not checked yet */
    uint32_t count; /* number of fresh frames */
    uint32_t joint; /* the first frame that is reused; FRAMES_MAX: none */
};

/* Whether the walk has come to this remembered frame, and all frames further out are unchanged. */
static bool is_remembered(struct stack_walk *walk, const struct ms_step_at *at, uint32_t index)
{
    const struct native_memory *memory = walk->memory;
    const struct ms_stack_place *place = &memory->places[index];
    if (memory->addresses[index] != at->address || (place->needs_bp && place->bp != at->bp)) {
        return false;
    }
    if (walk->valid == 0) {
        walk->valid = unchanged_from(memory, index);
    }
    return index >= walk->valid;
}

/* Whether a call instruction lies before the address. An address in no unwind table may be code
 * made at run time, or no code at all. */
static bool follows_call(uint64_t address)
{
    enum { PAGE = 4096, LONGEST = 7 };
    if (!ms_stack_readable(address - 1)) {
        return false;
    }
    /* The page before the code's page may not be readable. */
    const uint32_t before =
        ms_stack_readable(address - LONGEST) ? LONGEST : (uint32_t)(address % PAGE);
    const uint8_t *end = (const uint8_t *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
    if (before >= 5 && end[-5] == 0xe8) {
        return true; /* call, relative */
    }
    for (uint32_t bytes = 2; bytes <= before; bytes++) { /* call, through a register or memory */
        const uint8_t *call = end - bytes;
        if (call[0] == 0xff && (call[1] & 0x38) == 0x10) {
            return true;
        }
    }
    return false;
}

/* Steps that are not plain. */
static __attribute__((noinline)) enum ms_step
step_otherwise(struct stack_walk *walk, union ms_rule rule, struct fresh_frame *frame)
{
    const bool own = walk->part.own;
    enum ms_step step = ms_step_out(&walk->at, rule, &walk->part, &walk->memory->stack);
    frame->bp_slot = step == MS_STEP_OUTERMOST && own ? 0 : BY_MORE;
    if (step == MS_STEP_UNKNOWN && !follows_call(walk->at.address)) {
        walk->count--;
    }
    return step;
}

/* The loop in which a capture spends its time: what it needs is in registers. */
static enum ms_step walk_out(struct stack_walk *walk)
{
    struct native_memory *memory = walk->memory;
    struct fresh_frame *frame = memory->fresh;
    const struct ms_stack_place *next = &memory->places[memory->kept];
    struct ms_step_at at = walk->at;
    uint64_t end = walk->part.end, flags = walk->part.own ? 0 : BY_MORE, slot;
    for (;; frame++) {
        while (next->sp < at.sp) {
            next++;
        }
        if (next->sp == at.sp && frame - memory->fresh <= next - memory->places &&
            is_remembered(walk, &at, (uint32_t)(next - memory->places))) {
            walk->joint = (uint32_t)(next - memory->places);
            walk->count = (uint32_t)(frame - memory->fresh);
            return MS_STEP_OUTERMOST;
        }
        if (frame == &memory->fresh[FRAMES_MAX]) {
            walk->count = FRAMES_MAX;
            return MS_STEPPED;
        }
        frame->at = at;
        const union ms_rule rule = ms_rule_of(at.address, walk->stamp);
        if (__builtin_expect(ms_step_plainly(&at, rule, end, &slot), 1)) {
            frame->bp_slot = slot | flags | rule.uses_bp;
            continue;
        }
        walk->at = at;
        walk->count = (uint32_t)(frame - memory->fresh) + 1;
        enum ms_step step = step_otherwise(walk, rule, frame);
        if (step > MS_STEPPED_BY_MORE) {
            return step;
        }
        at = walk->at;
        end = walk->part.end;
        flags = walk->part.own ? 0 : BY_MORE;
    }
}

/* Puts the fresh frames in front of the reused ones. */
static void remember(const struct stack_walk *walk, bool complete)
{
    struct native_memory *memory = walk->memory;
    uint32_t at = walk->joint, by_more = 0;
    bool needs_bp = at < FRAMES_MAX && memory->places[at].needs_bp;
    uint64_t hash = at < FRAMES_MAX ? memory->hashes[at] : 0;
    for (uint32_t i = walk->count; i > 0; i--) {
        const struct fresh_frame *frame = &memory->fresh[i - 1];
        const uint64_t slot = frame->bp_slot & SLOT_MASK;
        at--;
        if (__builtin_expect((frame->bp_slot & BY_MORE) != 0 && by_more == 0, 0)) {
            by_more = at + 1; /* the outermost such frame: frames further in are not kept */
        }
        hash = add_to_hash(hash, frame->at.address);
        memory->addresses[at] = frame->at.address;
        memory->hashes[at] = hash;
        struct ms_stack_place *place = &memory->places[at];
        place->sp = frame->at.sp;
        place->bp = frame->at.bp;
        place->bp_slot = needs_bp ? slot : 0;
        needs_bp = (needs_bp & (slot == 0)) | ((frame->bp_slot & USES_BP) != 0);
        place->needs_bp = needs_bp;
    }
    memory->first = at;
    memory->kept = !complete ? FRAMES_MAX : by_more != 0 ? by_more : at;
}

/* A stack is entered as known only if all words that its walk read are remembered. */
static void make_known(struct native_memory *memory)
{
    const uint32_t first = memory->first;
    if (memory->kept == first && first < FRAMES_MAX && memory->stamp != MS_STAMP_UNSTEADY) {
        ms_known_meet(&memory->known, &memory->places[first], &memory->addresses[first],
                      FRAMES_MAX - first, memory->hashes[first]);
    }
}

/* The shim's code is never unloaded, and its calls mostly repeat, so its rules are kept here. */
static inline union ms_rule own_rule(const struct stack_walk *walk, uint32_t index)
{
    struct native_memory *memory = walk->memory;
    const uint32_t at = index % OWN_RULES;
    if (memory->own[at].address != walk->at.address) {
        memory->own[at].rule = ms_rule_of(walk->at.address, walk->stamp);
        memory->own[at].address = walk->at.address;
    }
    return memory->own[at].rule;
}

/* Steps past the shim's own frames on top. */
static enum ms_step leave_own(struct stack_walk *walk)
{
    enum ms_step step = MS_STEPPED;
    uint64_t slot;
    for (uint32_t i = 0; i < OWN_FRAMES_MAX && is_own(walk->at.address); i++) {
        const union ms_rule rule = own_rule(walk, i);
        if (!ms_step_plainly(&walk->at, rule, walk->part.end, &slot)) {
            step = ms_step_out(&walk->at, rule, &walk->part, &walk->memory->stack);
            if (step > MS_STEPPED_BY_MORE) {
                break;
            }
        }
    }
    return step;
}

/* Known stacks are the thread's own, so this needs no check of which stack it is. There are none
 * while the stamp is unsteady, and none has sp 0. */
static inline struct ms_known_stack *known_from(struct native_memory *memory,
                                                const struct ms_step_at *from, uint64_t epoch)
{
    return memory->stamp == ms_rule_stamp(epoch) ? ms_known_find(&memory->known, from) : NULL;
}

/* Walks from that frame, or from this function's caller, without the shim's own frames on top. */
static __attribute__((noinline)) enum ms_step walk_stack(struct native_memory *memory,
                                                         const struct ms_step_at *from,
                                                         uint64_t epoch,
                                                         struct ms_known_stack **known)
{
    struct stack_walk walk = {.memory = memory, .stamp = ms_rule_stamp(epoch), .joint = FRAMES_MAX};
    if (from != NULL && from->sp != 0) {
        walk.at = *from;
    } else {
        __asm__ volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
                         : "=&r"(walk.at.address), "=&r"(walk.at.sp), "=&r"(walk.at.bp));
    }
    walk.part = ms_stack_part_at(&memory->stack, walk.at.sp);
    if (memory->stamp != walk.stamp || walk.stamp == MS_STAMP_UNSTEADY) {
        memory->kept = FRAMES_MAX;
        memory->stamp = walk.stamp;
        ms_known_forget(&memory->known);
    }
    enum ms_step step = leave_own(&walk);
    if (step <= MS_STEPPED_BY_MORE && walk.part.own) {
        *known = ms_known_find(&memory->known, &walk.at);
        if (*known != NULL) {
            return MS_STEP_OUTERMOST;
        }
    }
    if (step <= MS_STEPPED_BY_MORE) {
        step = walk_out(&walk);
    }
    remember(&walk, step == MS_STEP_OUTERMOST);
    make_known(memory);
    return step;
}

#else

static struct ms_known_stack *known_from(struct native_memory *memory,
                                         const struct ms_step_at *from, uint64_t epoch)
{
    (void)memory;
    (void)from;
    (void)epoch;
    return NULL;
}

static __attribute__((noinline)) enum ms_step walk_stack(struct native_memory *memory,
                                                         const struct ms_step_at *from,
                                                         uint64_t epoch,
                                                         struct ms_known_stack **known)
{
    (void)from;
    (void)epoch;
    (void)known;
    struct ms_unwind_walk walk = {.addresses = memory->hashes, .most = FRAMES_MAX};
    memory->first = FRAMES_MAX;
    if (!ms_unwind_library_is_open()) {
        return MS_STEP_LOST;
    }
    ms_unwind_library_walk(&walk);
    uint32_t own = 0;
    while (own < walk.count && is_own(walk.addresses[own])) {
        own++;
    }
    memory->first = FRAMES_MAX - (walk.count - own);
    memcpy(&memory->addresses[memory->first], &walk.addresses[own],
           (walk.count - own) * sizeof(memory->addresses[0]));
    memory->hashes[FRAMES_MAX - 1] = 0;
    if (walk.ended) {
        return MS_STEP_OUTERMOST;
    }
    return walk.count == FRAMES_MAX ? MS_STEPPED : MS_STEP_LOST;
}

#endif

/* Sets a stack of `count` frames; only its first `depth` frames if there are more. */
static inline void set_stack(struct ms_native_stack *out, const uint64_t *addresses, uint32_t count,
                             uint32_t depth, uint64_t hash)
{
    out->addresses = addresses;
    out->cut = count > depth;
    out->count = count > depth ? depth : count;
    out->hash = count > depth ? hash_of(addresses, depth) : hash;
}

struct ms_native_note *ms_native_recall(const struct ms_step_at *from, uint32_t depth,
                                        uint64_t *generation)
{
    const uint64_t epoch = ms_modules_now();
    struct native_memory *memory = mine;
    *generation = epoch >> 16;
    if (memory == NULL || memory->busy) {
        return NULL;
    }
    memory->busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    struct ms_known_stack *known = known_from(memory, from, epoch);
    atomic_signal_fence(memory_order_seq_cst);
    memory->busy = false;
    return known != NULL && known->count <= depth ? &known->note : NULL;
}

void ms_native_recalled(struct ms_native_note *note, uint64_t generation,
                        struct ms_native_stack *out)
{
    const struct ms_known_stack *known = (const struct ms_known_stack *)note;
    *out = (struct ms_native_stack){.addresses = known->words,
                                    .count = known->count,
                                    .hash = known->hash,
                                    .generation = generation,
                                    .note = note};
}

void ms_native_capture_from(const struct ms_step_at *from, uint32_t depth,
                            struct ms_native_stack *out)
{
    const uint64_t epoch = ms_modules_now();
    struct native_memory *memory = mine;
    *out = (struct ms_native_stack){.lost = true, .generation = epoch >> 16};
    if (__builtin_expect(memory == NULL, 0)) {
        memory = claim();
    }
    if (memory == NULL || memory->busy) {
        return;
    }
    memory->busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    struct ms_known_stack *known = from != NULL ? known_from(memory, from, epoch) : NULL;
    const enum ms_step end =
        known != NULL ? MS_STEP_OUTERMOST : walk_stack(memory, from, epoch, &known);
    if (known != NULL) {
        set_stack(out, known->words, known->count, depth, known->hash);
        out->note = out->cut ? NULL : &known->note;
    } else {
        const uint32_t first = memory->first, count = FRAMES_MAX - first;
        set_stack(out, &memory->addresses[first], count, depth,
                  count != 0 ? memory->hashes[first] : 0);
        out->cut |= end == MS_STEPPED;
    }
    out->lost = !out->cut && end >= MS_STEP_UNKNOWN;
    atomic_signal_fence(memory_order_seq_cst);
    memory->busy = false;
}

void ms_native_capture(uint32_t depth, struct ms_native_stack *out)
{
    ms_native_capture_from(NULL, depth, out);
}
