/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose stacks are hard to read at the moment it asks for memory, or which is in the
 * middle of reading them when something else happens. One scenario a run: survive_job NAME. */
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

#ifdef __clang__
#    define PLACE __attribute__((noinline))
#else
#    define PLACE __attribute__((noinline, noclone))
#endif

static struct driver cu;
static CUcontext context;

static PLACE void allocate(void)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, 64 * KIB));
    MUST(cu.cuMemFree(block));
}

/* --- Fork ------------------------------------------------------------------------------------- */

static atomic_bool forking = true;

static PLACE int left(unsigned bits, unsigned depth);

/* A stack for each number, so that new ones are met all the time. */
static PLACE int right(unsigned bits, unsigned depth)
{
    if (depth == 0) {
        allocate();
        return 1;
    }
    return 1 + (bits & 1u ? right(bits >> 1, depth - 1) : left(bits >> 1, depth - 1));
}

static PLACE int left(unsigned bits, unsigned depth)
{
    if (depth == 0) {
        return 2 + right(bits, depth);
    }
    return 2 + (bits & 1u ? right(bits >> 1, depth - 1) : left(bits >> 1, depth - 1));
}

static void *meet_new_places(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;
    int sum = 0;
    MUST(cu.cuCtxSetCurrent(context));
    while (forking) {
        sum += right((unsigned)next_random(&random), 20);
    }
    return sum != 0 ? NULL : seed;
}

static void child(int round, char *self)
{
    char *const arguments[] = {self, (char[]){"nothing"}, NULL};
    (void)alarm(60);
    free(malloc(100000));
    if (round % 3 == 0) {
        _exit(0);
    }
    if (round % 3 == 1) {
        exit(0);
    }
    (void)execv(self, arguments);
    _exit(1);
}

static void fork_while_capturing(int children, char *self)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    cu = driver_use(&context);
    for (uintptr_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, meet_new_places, (void *)(i + 1)));
    }
    for (int round = 0; round < children; round++) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0) {
            child(round, self);
        }
        EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
        MUST(status);
    }
    forking = false;
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
}

/* --- Signals ---------------------------------------------------------------------------------- */

struct range {
    uint64_t begin, end;
};

struct search {
    const char *name; /* the end of its path; the program itself has none */
    struct range found;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const size_t path = strlen(info->dlpi_name), name = strlen(search->name);
    (void)size;
    if (path < name || (name == 0 && path > 0) ||
        strcmp(info->dlpi_name + path - name, search->name) != 0) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            search->found.begin = info->dlpi_addr + part->p_vaddr;
            search->found.end = search->found.begin + part->p_memsz;
        }
    }
    return 1;
}

/* Where the code of a library lies; nowhere where it is not loaded. */
static struct range code_of(const char *name)
{
    struct search search = {.name = name};
    (void)dl_iterate_phdr(look_at, &search);
    return search.found;
}

static bool inside(struct range range, uint64_t address)
{
    return address - range.begin < range.end - range.begin;
}

static uint64_t instruction_of(const ucontext_t *state)
{
#if defined(__x86_64__)
    return (uint64_t)state->uc_mcontext.gregs[REG_RIP];
#else
    return state->uc_mcontext.pc;
#endif
}

static struct range own_code, shim_code;
static volatile unsigned in_own, in_shim;

/* A driver's locks may be held anywhere but in the program's own code and in memshim's. */
static void allocate_in_handler(int number, siginfo_t *info, void *state)
{
    const ucontext_t *interrupted = state;
    const uint64_t at = instruction_of(interrupted);
    (void)number;
    (void)info;
    if (inside(shim_code, at)) {
        in_shim++;
        allocate();
    } else if (inside(own_code, at)) {
        in_own++;
        allocate();
    }
}

static void handle(int number, int flags)
{
    enum { STACK = 1 << 16 };
    struct sigaction action = {.sa_sigaction = allocate_in_handler,
                               .sa_flags = flags | SA_SIGINFO | SA_RESTART};
    const stack_t stack = {.ss_sp = malloc(STACK), .ss_size = STACK};
    shim_code = code_of("/libmemshim.so");
    MUST(sigaltstack(&stack, NULL));
    MUST(sigaction(number, &action, NULL));
}

static PLACE void handlers(int flags)
{
    enum { ENOUGH = 300 };
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    const time_t until = time(NULL) + 60;
    sigset_t alarms;
    (void)sigemptyset(&alarms);
    (void)sigaddset(&alarms, SIGALRM);
    own_code = code_of("");
    handle(SIGALRM, flags);
    MUST(pthread_sigmask(SIG_BLOCK, &alarms, NULL)); /* the driver's threads do not get it */
    cu = driver_use(&context);
    MUST(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL));
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    for (unsigned i = 0; (in_shim < ENOUGH || in_own == 0) && time(NULL) < until; i++) {
        (void)right(i, 12);
    }
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    EXPECT(in_shim >= (shim_code.end != 0 ? ENOUGH : 0));
    EXPECT(in_own > 0);
}

#if defined(__x86_64__)

/* The processor's trap flag: SIGTRAP after each instruction. */
static void trap_each_instruction(bool on)
{
    const uint64_t flag = 0x100;
    if (on) {
        __asm__ volatile(
            "subq $128, %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\taddq $128, %%rsp"
            :
            : "r"(flag)
            : "cc", "memory");
    } else {
        __asm__ volatile(
            "subq $128, %%rsp\n\tpushfq\n\tandq %0, (%%rsp)\n\tpopfq\n\taddq $128, %%rsp"
            :
            : "r"(~flag)
            : "cc", "memory");
    }
}

/* A signal at each instruction of the library that an allocation and a free pass through. */
static PLACE void each_instruction(int flags)
{
    cu = driver_use(&context);
    allocate();
    allocate();
    handle(SIGTRAP, flags);
    trap_each_instruction(true);
    allocate();
    trap_each_instruction(false);
    EXPECT(in_shim > (shim_code.end != 0 ? 100 : 0));
}

#endif

/* --- Little stack, much stack ----------------------------------------------------------------- */

static char *low_end;

/* Goes down until so many bytes are left above the guard page. */
static PLACE int down_to(size_t left_bytes)
{
    volatile char room[64];
    room[0] = 1;
    if ((size_t)((char *)__builtin_frame_address(0) - low_end) < left_bytes) {
        allocate();
        return 1;
    }
    return down_to(left_bytes) + room[0];
}

static void *near_the_guard(void *left_bytes)
{
    MUST(cu.cuCtxSetCurrent(context));
    return down_to((size_t)(uintptr_t)left_bytes) > 1 ? NULL : left_bytes;
}

static void guard_page(size_t left_bytes)
{
    enum { BYTES = 1 << 18, PAGE = 4096 };
    pthread_attr_t attributes;
    pthread_t thread;
    cu = driver_use(&context);
    low_end = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(low_end != MAP_FAILED);
    MUST(mprotect(low_end, PAGE, PROT_NONE));
    low_end += PAGE;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstack(&attributes, low_end, BYTES - PAGE));
    MUST(pthread_create(&thread, &attributes, near_the_guard, (void *)(uintptr_t)left_bytes));
    MUST(pthread_join(thread, NULL));
}

static PLACE int deep(unsigned depth)
{
    if (depth == 0) {
        allocate();
        return 1;
    }
    return 1 + deep(depth - 1);
}

/* --- Code and registers that nothing is known of ---------------------------------------------- */

#if defined(__x86_64__)
static void made_code(void)
{
    /* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
    static const uint8_t code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
    const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    cu = driver_use(&context);
    for (int i = 0; i < 100; i++) { /* a page that comes and goes */
        uint8_t *page = mmap(NULL, 4096, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(page != MAP_FAILED);
        memcpy(page, code, sizeof(code));
        ((void (*)(void (*)(void)))(uintptr_t)page)(allocate);
        MUST(munmap(page, 4096));
    }
}

/* Without tables; rbp is `value` while it calls. */
void call_with_rbp(void (*function)(void), uint64_t value);
/* Tables that say the frame is found through rbp, which is not so. */
void call_with_false_tables(void (*function)(void), uint64_t value);
__asm__(".pushsection .text\n"
        ".macro body\n"
        "    push %rbp\n"
        "    mov %rsi, %rbp\n"
        "    call *%rdi\n"
        "    pop %rbp\n"
        "    ret\n"
        ".endm\n"
        "call_with_rbp: body\n"
        "call_with_false_tables: .cfi_startproc\n"
        "    .cfi_def_cfa 6, 16\n"
        "    .cfi_offset 6, -16\n"
        "    body\n"
        "    .cfi_endproc\n"
        "    .popsection\n");

static void frame_pointers(void)
{
    const uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    const uint64_t values[] = {0,        1,        8,          0x1000,     UINT64_MAX,
                               here + 1, here - 8, here - 512, here + 512, here + (1u << 23)};
    uint64_t random = 7;
    cu = driver_use(&context);
    for (int i = 0; i < 2000; i++) {
        const uint64_t wild = next_random(&random);
        const uint64_t value = i < 10 ? values[i] : i % 2 ? wild : here - 8192 + wild % (1u << 18);
        call_with_rbp(allocate, value);
        call_with_false_tables(allocate, value);
    }
}
#else
static void made_code(void)
{
    cu = driver_use(&context);
    allocate();
}

static void frame_pointers(void)
{
    made_code();
}
#endif

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    const char *number = count > 2 ? arguments[2] : "0";
    if (strcmp(name, "fork") == 0) {
        fork_while_capturing(atoi(number), arguments[0]);
    } else if (strcmp(name, "handlers") == 0) {
        handlers(0);
    } else if (strcmp(name, "handlers-on-a-stack") == 0) {
        handlers(SA_ONSTACK);
#if defined(__x86_64__)
    } else if (strcmp(name, "each-instruction") == 0) {
        each_instruction(0);
    } else if (strcmp(name, "each-instruction-on-a-stack") == 0) {
        each_instruction(SA_ONSTACK);
#endif
    } else if (strcmp(name, "guard-page") == 0) {
        guard_page((size_t)atoi(number));
    } else if (strcmp(name, "deep") == 0) {
        cu = driver_use(&context);
        EXPECT(deep((unsigned)atoi(number)) > 0);
    } else if (strcmp(name, "made-code") == 0) {
        made_code();
    } else if (strcmp(name, "frame-pointers") == 0) {
        frame_pointers();
    } else if (strcmp(name, "nothing") != 0) {
        (void)fprintf(stderr, "usage: survive_job SCENARIO\n");
        return 2;
    }
    (void)printf("survived\n");
    return 0;
}
