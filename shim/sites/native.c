/* What a walk from a frame outwards gives is a function of four things: the frame's return address,
 * its stack pointer, its frame pointer where a frame further out still needs it, and the stack
 * words that are read on the way (return addresses, and saved frame pointers that are still
 * needed). So where a frame equals a remembered one in the first three, and the words hold what
 * they held, the remembered frames are what a walk would give, whatever happened in between: they
 * are taken over. That is all the words a walk reads, as long as frames are of the plain kind; from
 * a frame of another kind outwards nothing inside of it is remembered. The tables are the third
 * party: where a library has gone, all that is remembered is forgotten. */
#include "shim/sites/native.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "shim/sites/modules.h"
#include "shim/sites/native_stack.h"
#include "shim/sites/unwind_library.h"
#include "shim/sites/unwind_rule.h"

#define OWN_FRAMES_MAX 32u /* of the shim, on top */
#define FRAMES_MAX     MS_STACK_DEPTH_MAX

/* A frame that is remembered; its return address and hash lie beside it. */
struct place {
    uint64_t sp, bp;
    uint64_t bp_slot; /* where the caller's bp was read, 0 where nobody further out needs it */
    bool needs_bp;    /* a frame from here on outwards is found through it */
};

/* A frame just walked. */
struct fresh {
    uint64_t address, sp, bp, bp_slot;
    bool uses_bp, unverifiable;
};

/* A thread's memory of its last stack: frames [first, FRAMES_MAX), the outermost last, so that
 * frames that come and go on top leave the others where they are. */
struct memory {
    struct memory *next;    /* never changes once in the list */
    _Atomic uint64_t owner; /* thread id in the lower half; the upper half counts owners */
    volatile bool busy;     /* a capture is under way, which a signal may have interrupted */
    uint32_t first;         /* of the last stack */
    uint32_t kept;          /* frames from here on may be taken over */
    uint64_t stamp;         /* under which they were learned */
    struct ms_own_stack stack;
    uint64_t addresses[FRAMES_MAX];
    uint64_t hashes[FRAMES_MAX]; /* of the addresses from here on outwards */
    struct place places[FRAMES_MAX];
    struct fresh fresh[FRAMES_MAX];
};

static _Thread_local __attribute__((tls_model("initial-exec"))) struct memory *mine;
static _Atomic(struct memory *) memories; /* of all threads; they are never unmapped */

static uintptr_t own_text, own_text_bytes;

/* --- Life -------------------------------------------------------------------------------------
 */

/* The linker's name for where this library begins. */
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

/* A thread that ended leaves its memory to the next one that needs any. No destructor tells of the
 * end: making one may allocate, and a first capture may be in a signal handler. */
static bool take_from_dead(struct memory *memory, uint64_t self)
{
    uint64_t before = atomic_load(&memory->owner);
    uint32_t tid = (uint32_t)before;
    bool dead =
        tid == self || (syscall(SYS_tgkill, getpid(), (pid_t)tid, 0) == -1 && errno == ESRCH);
    uint64_t after = ((before >> 32) + 1) << 32 | self;
    /* Whoever else found it dead, or got the dead one's id, finds another owner. */
    return dead && atomic_compare_exchange_strong(&memory->owner, &before, after);
}

static struct memory *map_memory(uint64_t self)
{
    void *mapped = mmap(NULL, sizeof(struct memory), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return NULL;
    }
    struct memory *memory = mapped;
    atomic_store(&memory->owner, self);
    memory->next = atomic_load(&memories);
    while (!atomic_compare_exchange_weak(&memories, &memory->next, memory)) {
    }
    return memory;
}

static struct memory *claim(void)
{
    const int saved = errno;
    const uint64_t self = (uint64_t)syscall(SYS_gettid);
    struct memory *memory = atomic_load(&memories);
    while (memory != NULL && !take_from_dead(memory, self)) {
        memory = memory->next;
    }
    if (memory == NULL) {
        memory = map_memory(self);
    }
    if (memory != NULL) {
        memory->busy = false;
        memory->first = memory->kept = FRAMES_MAX;
        memory->stack = (struct ms_own_stack){0};
    }
    mine = memory;
    errno = saved;
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

/* --- One frame --------------------------------------------------------------------------------
 */

enum step {
    STEPPED,
    STEPPED_UNVERIFIABLE, /* by more than the words that a place names */
    OUTERMOST,            /* there is nothing further out, and no word was read to know it */
    ENDED,                /* likewise, but known from a word */
    LOST
};

struct walk {
    struct memory *memory;
    uint64_t address, sp, bp; /* of the frame the walk has come to */
    uint64_t bp_slot;         /* where the last step read bp; 0: it was kept */
    bool used_bp;             /* the last step found the CFA through it */
    struct ms_stack_part part;
    uint64_t stamp;
};

static inline uint64_t word_at(uint64_t address)
{
    return *(const uint64_t *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
}

/* The CFA ends the frame: it is further out, and the word below it can be read. */
static inline bool may_end_at(struct walk *walk, uint64_t cfa)
{
    return cfa > walk->sp && (cfa & 7) == 0 &&
           (__builtin_expect(cfa <= walk->part.end, 1) ||
            ms_stack_part_reach(&walk->part, cfa - 8));
}

static inline bool in_frame(const struct walk *walk, uint64_t slot, uint64_t cfa)
{
    return slot >= walk->sp && slot < cfa && (slot & 7) == 0;
}

/* Out of a frame of which the CFA is known. */
static inline bool leave(struct walk *walk, union ms_rule rule, uint64_t cfa)
{
    uint64_t bp = walk->bp;
    walk->bp_slot = 0;
    if (!may_end_at(walk, cfa)) {
        return false;
    }
    if (rule.bp != MS_BP_KEPT) {
        uint64_t slot = (rule.bp == MS_BP_AT_CFA ? cfa : bp) + (uint64_t)(rule.bp_words * 8);
        if (!in_frame(walk, slot, cfa)) {
            return false;
        }
        walk->bp_slot = slot;
        bp = word_at(slot);
    }
    walk->used_bp = rule.from_bp || rule.bp == MS_BP_AT_BP;
    walk->address = word_at(cfa - 8);
    walk->sp = cfa;
    walk->bp = bp;
    return true;
}

/* What the kernel saved when it interrupted the frame that comes next: that may lie on another
 * stack, above or below. */
static enum step leave_signal(struct walk *walk)
{
    const ucontext_t *saved = (const ucontext_t *)(uintptr_t)walk->sp;
    if (!may_end_at(walk, walk->sp + sizeof(*saved))) {
        return LOST;
    }
    const greg_t *registers = saved->uc_mcontext.gregs;
    walk->address = (uint64_t)registers[REG_RIP] + 1;
    walk->bp = (uint64_t)registers[REG_RBP];
    walk->sp = (uint64_t)registers[REG_RSP];
    walk->part = ms_stack_part_at(&walk->memory->stack, walk->sp);
    return STEPPED_UNVERIFIABLE;
}

static enum step leave_by_library(struct walk *walk)
{
    struct ms_unwind_frame frame = {walk->address, walk->sp, walk->bp};
    if (!ms_unwind_library_is_open() || !ms_unwind_library_step(&frame)) {
        return LOST;
    }
    if (frame.address == 0) {
        return ENDED;
    }
    if (!may_end_at(walk, frame.sp)) {
        return LOST;
    }
    walk->address = frame.address;
    walk->sp = frame.sp;
    walk->bp = frame.bp;
    return STEPPED_UNVERIFIABLE;
}

static enum step leave_otherwise(struct walk *walk, union ms_rule rule)
{
    walk->used_bp = true;
    walk->bp_slot = 0;
    switch ((enum ms_rule_kind)rule.kind) {
    case MS_RULE_OUTERMOST:
        return OUTERMOST;
    case MS_RULE_SIGNAL:
        return leave_signal(walk);
    case MS_RULE_UNUSUAL:
        return leave_by_library(walk);
    case MS_RULE_INDIRECT: {
        uint64_t slot = (rule.from_bp ? walk->bp : walk->sp) + (uint64_t)(rule.cfa_words * 8);
        if (!may_end_at(walk, slot + 8) ||
            !leave(walk, rule, word_at(slot) + (uint64_t)(rule.add_words * 8))) {
            return LOST;
        }
        return walk->address != 0 ? STEPPED_UNVERIFIABLE : ENDED;
    }
    case MS_RULE_PLAIN:
    case MS_RULE_NONE:
        break;
    }
    return LOST;
}

static inline enum step step_out(struct walk *walk)
{
    union ms_rule rule = ms_rule_of(walk->address, walk->stamp);
    if (__builtin_expect(rule.kind != MS_RULE_PLAIN, 0)) {
        return leave_otherwise(walk, rule);
    }
    uint64_t base = rule.from_bp ? walk->bp : walk->sp;
    if (!leave(walk, rule, base + (uint64_t)(rule.cfa_words * 8))) {
        return LOST;
    }
    return __builtin_expect(walk->address != 0, 1) ? STEPPED : ENDED;
}

/* --- All frames -------------------------------------------------------------------------------
 */

/* The frame furthest in from which on all words that lead outwards hold what they held. */
static uint32_t unchanged_from(const struct memory *memory, uint32_t innermost)
{
    uint32_t at = FRAMES_MAX - 1;
    while (at > innermost) {
        const struct place *outer = &memory->places[at], *inner = outer - 1;
        if (word_at(outer->sp - 8) != memory->addresses[at] ||
            (inner->bp_slot != 0 && word_at(inner->bp_slot) != outer->bp)) {
            break;
        }
        at--;
    }
    return at;
}

/* Finds the frame that a walk has come to among the remembered ones. */
struct lookout {
    uint32_t next;  /* the innermost one that may still be met */
    uint32_t valid; /* frames from here on are unchanged; FRAMES_MAX: not looked at yet */
};

static inline bool meets(struct lookout *lookout, const struct walk *walk)
{
    const struct memory *memory = walk->memory;
    uint32_t at = lookout->next;
    while (at < FRAMES_MAX && memory->places[at].sp < walk->sp) {
        at++;
    }
    lookout->next = at;
    if (at == FRAMES_MAX || memory->places[at].sp != walk->sp ||
        memory->addresses[at] != walk->address ||
        (memory->places[at].needs_bp && memory->places[at].bp != walk->bp)) {
        return false;
    }
    if (lookout->valid == FRAMES_MAX) {
        lookout->valid = unchanged_from(memory, at);
    }
    return at >= lookout->valid;
}

struct result {
    uint32_t count; /* of fresh frames */
    uint32_t joint; /* the first frame that is taken over; FRAMES_MAX: none */
    enum step end;  /* what ended it; STEPPED: there was no more room */
};

/* An address that no table knows may be code made at run time, or no code at all. */
static bool follows_call(uint64_t address)
{
    if (!ms_stack_readable(address - 8) || !ms_stack_readable(address - 1)) {
        return false;
    }
    const uint8_t *end = (const uint8_t *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
    if (end[-5] == 0xe8) {
        return true; /* call, relative */
    }
    for (int bytes = 2; bytes <= 7; bytes++) { /* call, through a register or memory */
        if (end[-bytes] == 0xff && (end[-bytes + 1] & 0x38) == 0x10) {
            return true;
        }
    }
    return false;
}

static bool is_code(const struct walk *walk)
{
    return ms_rule_of(walk->address, walk->stamp).kind != MS_RULE_NONE ||
           follows_call(walk->address);
}

static struct result walk_out(struct walk *walk)
{
    struct memory *memory = walk->memory;
    struct lookout lookout = {memory->kept, FRAMES_MAX};
    struct result result = {.joint = FRAMES_MAX, .end = STEPPED};
    for (;;) {
        if (meets(&lookout, walk) && result.count <= lookout.next) {
            result.joint = lookout.next;
            result.end = OUTERMOST;
            return result;
        }
        if (result.count == FRAMES_MAX) {
            return result;
        }
        struct fresh *frame = &memory->fresh[result.count++];
        frame->address = walk->address;
        frame->sp = walk->sp;
        frame->bp = walk->bp;
        const bool own_stack = walk->part.own;
        enum step step = step_out(walk);
        frame->bp_slot = walk->bp_slot;
        frame->uses_bp = walk->used_bp;
        frame->unverifiable = step != STEPPED || !own_stack;
        if (__builtin_expect(step > STEPPED_UNVERIFIABLE, 0)) {
            frame->unverifiable = step != OUTERMOST || !own_stack;
            frame->uses_bp = false;
            result.end = step;
            result.count -= step == LOST && !is_code(walk);
            return result;
        }
    }
}

/* Puts the fresh frames in front of those taken over. */
static void remember(struct memory *memory, struct result result)
{
    uint32_t at = result.joint;
    bool needs_bp = at < FRAMES_MAX && memory->places[at].needs_bp;
    uint64_t hash = at < FRAMES_MAX ? memory->hashes[at] : 0;
    uint32_t unverifiable = 0; /* frames further in than this one cannot be taken over */
    for (uint32_t i = result.count; i > 0; i--) {
        const struct fresh *frame = &memory->fresh[i - 1];
        at--;
        if (frame->unverifiable && unverifiable == 0) {
            unverifiable = at + 1;
        }
        hash = add_to_hash(hash, frame->address);
        memory->addresses[at] = frame->address;
        memory->hashes[at] = hash;
        memory->places[at].sp = frame->sp;
        memory->places[at].bp = frame->bp;
        memory->places[at].bp_slot = needs_bp ? frame->bp_slot : 0;
        needs_bp = frame->uses_bp || (needs_bp && frame->bp_slot == 0);
        memory->places[at].needs_bp = needs_bp;
    }
    memory->first = at;
    memory->kept = result.end != OUTERMOST ? FRAMES_MAX : unverifiable != 0 ? unverifiable : at;
}

/* From the caller of this on, the shim's own frames on top left out. */
static __attribute__((noinline)) enum step walk_stack(struct memory *memory, uint64_t epoch)
{
    struct walk walk = {.memory = memory, .stamp = ms_rule_stamp(epoch)};
    __asm__ volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
                     : "=&r"(walk.address), "=&r"(walk.sp), "=&r"(walk.bp));
    walk.part = ms_stack_part_at(&memory->stack, walk.sp);
    if (memory->stamp != walk.stamp || walk.stamp == MS_STAMP_UNSTEADY) {
        memory->kept = FRAMES_MAX;
        memory->stamp = walk.stamp;
    }
    for (uint32_t i = 0; i < OWN_FRAMES_MAX && is_own(walk.address); i++) {
        enum step step = step_out(&walk);
        if (step > STEPPED_UNVERIFIABLE) {
            memory->first = memory->kept = FRAMES_MAX;
            return step;
        }
    }
    struct result result = walk_out(&walk);
    remember(memory, result);
    return result.end;
}

#else

enum step { STEPPED, OUTERMOST, LOST };

static __attribute__((noinline)) enum step walk_stack(struct memory *memory, uint64_t epoch)
{
    (void)epoch;
    struct ms_unwind_walk walk = {.addresses = memory->hashes, .most = FRAMES_MAX};
    memory->first = FRAMES_MAX;
    if (!ms_unwind_library_is_open()) {
        return LOST;
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
        return OUTERMOST;
    }
    return walk.count == FRAMES_MAX ? STEPPED : LOST;
}

#endif

void ms_native_capture(uint32_t depth, struct ms_native_stack *out)
{
    const uint64_t epoch = ms_modules_now();
    struct memory *memory = mine;
    *out = (struct ms_native_stack){.lost = true, .generation = epoch >> 16};
    if (__builtin_expect(memory == NULL, 0)) {
        memory = claim();
    }
    if (memory == NULL || memory->busy) {
        return;
    }
    memory->busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    enum step end = walk_stack(memory, epoch);
    const uint32_t count = FRAMES_MAX - memory->first;
    out->addresses = &memory->addresses[memory->first];
    out->cut = count > depth || end == STEPPED;
    out->count = count > depth ? depth : count;
    out->lost = !out->cut && end == LOST;
    out->hash = count == out->count && count > 0 ? memory->hashes[memory->first]
                                                 : hash_of(out->addresses, out->count);
    atomic_signal_fence(memory_order_seq_cst);
    memory->busy = false;
}
