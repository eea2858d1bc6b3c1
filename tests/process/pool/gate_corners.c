/* SPDX-License-Identifier: Apache-2.0 */
/* Standstills that cannot be had, one case a run: each must be given up within its limit, with the
 * gate open again, or be refused at once; those that can, once a thread is let through, are had.
 * And threads that come, go, fork and call each other.
 *
 * Arguments: the case, or "list" for the names of all. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "allocator/base/status.h"
#include "cases.h"
#include "gate_entry.h"
#include "say.h"
#include "simgpu.h"

#define SHORT_NS   (50ull * 1000000)
#define LONG_NS    (20ull * 1000000000)
#define AREA_BYTES ((size_t)1 << 20)

static CUcontext context;
static CUstream stream;
static CUdeviceptr area;
static atomic_bool flag, reached;

static void begin(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&area, AREA_BYTES));
    MUST(cuMemsetD8(area, 0, AREA_BYTES));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void wait_for(atomic_bool *what)
{
    while (!atomic_load(what)) {
        nap_ms(1);
    }
}

static pthread_t run(void *(*function)(void *))
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, function, NULL) == 0);
    return thread;
}

/* Afterwards everything goes on, and a standstill can be had. */
static void all_is_well(pthread_t thread)
{
    pthread_join(thread, NULL);
    MUST(cuStreamSynchronize(stream));
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    MUST(cuMemsetD8(area, 1, AREA_BYTES));
}

/* --- work that ends only after a call of a thread that is held -------------------------------- */

static void CUDA_CB wait_on_host(void *unused)
{
    (void)unused;
    wait_for(&flag);
}

/* Its call has to pass the gate before it raises the flag. */
static void *call_then_flag(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    wait_for(&reached);
    nap_ms(50); /* the gate is closed meanwhile */
    MUST(cuMemsetD8(area, 2, 64));
    atomic_store(&flag, true);
    return NULL;
}

static void host_function_waits_for_held_thread(void)
{
    MUST(cuLaunchHostFunc(stream, wait_on_host, NULL));
    pthread_t other = run(call_then_flag);
    atomic_store(&reached, true);
    MUST(gate_halt(0, LONG_NS)); /* the gate opens again, and lets that thread through */
    gate_resume(0);
    all_is_well(other);
}

static unsigned *word; /* of pinned host memory */

static void *call_then_write_word(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    wait_for(&reached);
    nap_ms(50); /* the gate is closed meanwhile */
    MUST(cuMemsetD8(area, 2, 64));
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* As a kernel that spins on the host does. */
static void device_spins_on_the_host(void)
{
    CUdeviceptr at;
    MUST(cuMemHostAlloc((void **)&word, sizeof *word, CU_MEMHOSTALLOC_DEVICEMAP));
    *word = 0;
    MUST(cuMemHostGetDevicePointer(&at, word, 0));
    MUST(cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    pthread_t other = run(call_then_write_word);
    atomic_store(&reached, true);
    MUST(gate_halt(0, LONG_NS)); /* the gate opens again, and lets that thread through */
    gate_resume(0);
    all_is_well(other);
}

static void *second_half(void *unused)
{
    (void)unused;
    CUstream own;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    wait_for(&reached);
    nap_ms(50);
    MUST(cuStreamWriteValue32(own, area, 1, 0));
    MUST(cuStreamSynchronize(own));
    return NULL;
}

/* Each half of a collective is queued by a thread of its own; the first runs until the second
 * does. */
static void collective_over_threads(void)
{
    MUST(cuStreamWaitValue32(stream, area, 1, CU_STREAM_WAIT_VALUE_EQ));
    pthread_t other = run(second_half);
    atomic_store(&reached, true);
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    all_is_well(other);
}

static void *copy_and_wait(void *unused)
{
    (void)unused;
    unsigned back = 0;
    MUST(cuCtxSetCurrent(context));
    atomic_store(&reached, true);
    MUST(cuMemcpyDtoH(&back, area, sizeof back));
    EXPECT(back == 0x02020202);
    return NULL;
}

/* A call that waits for the device is in flight until the device is done. */
static void call_that_does_not_return(void)
{
    MUST(cuMemsetD8(area, 2, 64));
    MUST(cuLaunchHostFunc(0, wait_on_host, NULL));
    pthread_t other = run(copy_and_wait);
    wait_for(&reached);
    nap_ms(20);
    EXPECT(gate_halt(0, SHORT_NS) == MS_ERR_NOT_READY);
    atomic_store(&flag, true);
    all_is_well(other);
}

/* --- moments at which it is refused ----------------------------------------------------------- */

static void *capture_anew(void *unused)
{
    (void)unused;
    CUstream own;
    CUgraph graph;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    atomic_store(&reached, true);
    MUST(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(atomic_load(&flag)); /* after the standstill */
    MUST(cuStreamEndCapture(own, &graph));
    MUST(cuGraphDestroy(graph));
    return NULL;
}

static void while_something_captures(void)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
    MUST(cuMemsetD8Async(area, 3, 64, stream));
    MUST(cuStreamEndCapture(stream, &graph)); /* it was not harmed */
    MUST(cuGraphDestroy(graph));
    MUST(gate_halt(0, LONG_NS));
    pthread_t other = run(capture_anew);
    wait_for(&reached);
    nap_ms(20);
    atomic_store(&flag, true);
    gate_resume(0);
    all_is_well(other);
}

static void *capture_once(void *unused)
{
    CUstream own;
    CUgraph graph;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    atomic_store(&reached, true);
    MUST(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_GLOBAL));
    atomic_store(&flag, true);
    MUST(cuStreamEndCapture(own, &graph));
    MUST(cuGraphDestroy(graph));
    return unused;
}

/* As a record of an event does that a full queue keeps waiting. */
static void capture_while_it_is_held_off(void)
{
    EXPECT(gate_hold_off_captures());
    pthread_t other = run(capture_once);
    wait_for(&reached);
    while (!gate_captures()) { /* it is announced */
        nap_ms(1);
    }
    nap_ms(400);
    EXPECT(!atomic_load(&flag));       /* the capture has not begun, however long it takes */
    EXPECT(!gate_hold_off_captures()); /* and nobody else keeps it waiting */
    gate_let_captures_on();
    MUST(pthread_join(other, NULL));
    EXPECT(atomic_load(&flag));
}

static void halt_inside(void *status)
{
    *(int *)status = gate_halt(0, LONG_NS);
}

static void CUDA_CB halt_in_host_function(void *status)
{
    *(int *)status = gate_halt(0, SHORT_NS);
    atomic_store(&flag, true);
}

static void *nothing(void *unused)
{
    return unused;
}

static void from_where_the_device_waits(void)
{
    static int status;
    gate_inside(halt_inside, &status);
    EXPECT(status == MS_ERR_NOT_SUPPORTED);
    status = MS_OK;
    MUST(cuLaunchHostFunc(stream, halt_in_host_function, &status));
    wait_for(&flag);
    /* A driver that lets host functions call it has work that does not end; others refuse. */
    EXPECT(status == MS_ERR_NOT_READY || status == MS_ERR_NOT_SUPPORTED);
    all_is_well(run(nothing));
}

/* --- threads ---------------------------------------------------------------------------------- */

static void call_again(void *unused)
{
    (void)unused;
    atomic_store(&reached, true);
    nap_ms(20); /* the gate closes meanwhile, and waits for this call */
    MUST(cuMemsetD8(area, 4, 64));
}

static void *call_inside_a_call(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    gate_inside(call_again, unused);
    return NULL;
}

static void call_inside_a_call_goes_on(void)
{
    pthread_t other = run(call_inside_a_call);
    wait_for(&reached);
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    all_is_well(other);
}

static void end_thread(void *unused)
{
    pthread_exit(unused);
}

static void *die_inside_a_call(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemsetD8(area, 5, 64));
    gate_inside(end_thread, unused);
    return NULL;
}

static pthread_key_t key;

static void call_at_the_end(void *unused)
{
    (void)unused;
    MUST(cuMemsetD8(area, 6, 64));
}

static void *die_and_call(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    EXPECT(pthread_setspecific(key, &key) == 0);
    return NULL;
}

/* Threads come and go, and take what they are counted in with them. */
static void threads_that_die(void)
{
    EXPECT(pthread_key_create(&key, call_at_the_end) == 0);
    for (int i = 0; i < 100; i++) {
        pthread_join(run(i % 2 ? die_inside_a_call : die_and_call), NULL);
        MUST(gate_halt(0, LONG_NS));
        gate_resume(0);
    }
    all_is_well(run(nothing));
}

static int child_says(pid_t child)
{
    int status = 0;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void *fork_another(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        (void)cuMemsetD8(area, 7, 64); /* fails as the driver has it fail, but does not wait */
        _exit(42);
    }
    EXPECT(child_says(child) == 42);
    atomic_store(&flag, true);
    return NULL;
}

static void forks_during_a_standstill(void)
{
    MUST(gate_halt(0, LONG_NS));
    pthread_t other = run(fork_another);
    wait_for(&flag);
    pid_t child = fork();
    if (child == 0) {
        (void)cuMemsetD8(area, 7, 64);
        _exit(43);
    }
    EXPECT(child_says(child) == 43);
    gate_resume(0);
    all_is_well(other);
}

/* --- what cannot be seen through -------------------------------------------------------------- */

/* With more arguments than come in registers, and floating ones. */
typedef CUresult (*frob_t)(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                           uint64_t g, double x, float y);
static atomic_uint frobs;

static CUresult frob(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                     uint64_t g, double x, float y)
{
    bool same = a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && x == 8.5 &&
                y == 9.25F;
    atomic_fetch_add(&frobs, 1);
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult call(frob_t function)
{
    return function(1, 2, 3, 4, 5, 6, 7, 8.5, 9.25F);
}

static void function_that_nobody_knows(void)
{
    EXPECT(gate_stub("cuMemGetInfo_v2", (void *)frob) == (void *)frob);
    EXPECT(gate_stub("cuFrobGetState", (void *)frob) == (void *)frob);
    frob_t stub = (frob_t)gate_stub("cuFrobAsync_ptsz", (void *)frob);
    EXPECT(stub != frob);
    EXPECT((frob_t)gate_stub("cuFrobAsync_ptsz", (void *)frob) == stub);
    EXPECT(gate_why_not() == NULL);
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    for (unsigned calls = 1; calls <= 3; calls++) {
        errno = EDOM;
        MUST(call(stub));
        EXPECT(errno == EDOM && frobs == calls);
        EXPECT(strstr(gate_why_not(), "cuFrobAsync_ptsz") != NULL);
    }
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
    MUST(cuMemsetD8(area, 1, AREA_BYTES));
}

static frob_t first_stub;

static void *call_stub(void *unused)
{
    (void)unused;
    atomic_store(&reached, true);
    MUST(call(first_stub));
    return NULL;
}

/* Its first call waits until contents have moved; after it they move no more. */
static void first_call_during_a_standstill(void)
{
    first_stub = (frob_t)gate_stub("cuFrobAsync", (void *)frob);
    MUST(gate_halt(0, LONG_NS));
    pthread_t other = run(call_stub);
    wait_for(&reached);
    nap_ms(20);
    EXPECT(frobs == 0);
    gate_resume(0);
    pthread_join(other, NULL);
    EXPECT(frobs == 1);
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
}

/* Each has a stub of its own; where there are none left, to ask is enough. */
static void more_functions_than_stubs(void)
{
    static const char functions[1000];
    int stubs = 0;
    while (gate_stub("cuFrobAsync", (void *)&functions[stubs]) != (void *)&functions[stubs]) {
        EXPECT(gate_why_not() == NULL);
        stubs++;
    }
    EXPECT(stubs >= 64 && stubs < 1000);
    EXPECT(gate_why_not() != NULL);
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
}

/* A form of a known function that has no hook. */
static void form_that_nobody_knows(void)
{
    frob_t stub = (frob_t)gate_stub("cuMemcpyAsync_v9", (void *)frob);
    MUST(call(stub));
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
}

typedef CUresult (*begin_t)(CUstream at);
static bool refuses;

static CUresult begin_capture(CUstream at)
{
    return refuses ? CUDA_ERROR_INVALID_VALUE : (CUresult)gate_begin_capture(at);
}

/* Each call counts, until a capture of the stream is ended; also where the driver refuses it. */
static void capture_that_nobody_knows(void)
{
    begin_t stub = (begin_t)gate_stub("cuStreamBeginRecaptureToGraph", (void *)begin_capture);
    CUgraph graph;
    for (int round = 0; round < 6; round++) {
        CUstream captured = round % 2 ? CU_STREAM_PER_THREAD : stream;
        refuses = round / 2 == 1;
        EXPECT(!gate_captures());
        errno = EDOM;
        EXPECT(stub(captured) == (refuses ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
        EXPECT(errno == EDOM && gate_captures());
        CUresult result = cuStreamEndCapture(captured, &graph);
        EXPECT(result == CUDA_SUCCESS || refuses);
        if (result == CUDA_SUCCESS) {
            MUST(cuGraphDestroy(graph));
        }
    }
    EXPECT(!gate_captures());
    EXPECT(strstr(gate_why_not(), "cuStreamBeginRecaptureToGraph") != NULL);
}

/* It cannot be told when it ends: something captures from then on. */
static void capture_of_who_knows_what(void)
{
    static char no_stream;
    begin_t stub = (begin_t)gate_stub("cuGraphBeginRecapture", (void *)begin_capture);
    refuses = true;
    EXPECT(!gate_captures());
    EXPECT(stub((CUstream)(void *)&no_stream) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(gate_captures());
    MUST(cuMemsetD8(area, 1, AREA_BYTES));
}

static begin_t unknown_begin;
static atomic_int begun;

static void *begin_unknown(void *unused)
{
    static char no_stream;
    EXPECT(unknown_begin((CUstream)(void *)&no_stream) == CUDA_ERROR_INVALID_VALUE);
    atomic_fetch_add(&begun, 1);
    return unused;
}

/* The first two at once: neither of them begins while captures are held off. */
static void captures_of_who_knows_what(void)
{
    pthread_t threads[2];
    unknown_begin = (begin_t)gate_stub("cuGraphBeginRecapture", (void *)begin_capture);
    refuses = true;
    EXPECT(gate_hold_off_captures());
    threads[0] = run(begin_unknown);
    while (!gate_captures()) {
        nap_ms(1);
    }
    threads[1] = run(begin_unknown);
    nap_ms(200);
    EXPECT(atomic_load(&begun) == 0);
    gate_let_captures_on();
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    EXPECT(atomic_load(&begun) == 2 && gate_captures());
}

static void system_without_membarrier(void)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rows / sizeof *rows, rows};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    EXPECT(gate_halt(0, LONG_NS) == MS_ERR_NOT_SUPPORTED);
    EXPECT(gate_why_not() != NULL);
    MUST(cuMemsetD8(area, 1, AREA_BYTES));
}

/* --- main ------------------------------------------------------------------------------------- */

#define CASES(X)                           \
    X(host_function_waits_for_held_thread) \
    X(device_spins_on_the_host)            \
    X(collective_over_threads)             \
    X(call_that_does_not_return)           \
    X(while_something_captures)            \
    X(capture_while_it_is_held_off)        \
    X(from_where_the_device_waits)         \
    X(call_inside_a_call_goes_on)          \
    X(threads_that_die)                    \
    X(forks_during_a_standstill)           \
    X(function_that_nobody_knows)          \
    X(first_call_during_a_standstill)      \
    X(more_functions_than_stubs)           \
    X(form_that_nobody_knows)              \
    X(capture_that_nobody_knows)           \
    X(capture_of_who_knows_what)           \
    X(captures_of_who_knows_what)          \
    X(system_without_membarrier)

static const struct test_case cases[] = {
#define CASE(name) {#name, name},
    CASES(CASE)};

int main(int argc, char **argv)
{
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases, begin);
}
