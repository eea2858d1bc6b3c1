/* SPDX-License-Identifier: Apache-2.0 */
/* What every function that memshim stands in front of answers, in every state of context and
 * capture.
 *
 *   parity_job list                    the names of the states
 *   parity_job STATE [FIRST]           a line for each function, from the FIRST on:
 *                                      number,function,variant,state,result[/result of the capture]
 *
 * The functions and their parameters are those of shim/tables/hooks.def. `valid` passes things that
 * exist, of a kind that the type and name of the parameter ask for (parity_world.c); `bad` passes
 * null pointers and sizes of zero. A line is written before the call is made, and completed after
 * it, so that whoever reads it knows which call ended the program. Runs on the simulated GPU and on
 * a real one. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>

#include "parity_world.h"
#include "say.h"

enum { MOST_ARGUMENTS = 12 };

static const struct function {
    const char *symbol, *parameters;
} functions[] = {
#define MS_HOOK(symbol, base, version, flavour, parameters, arguments, disposition, text) \
    {#symbol, #parameters},
#include "shim/tables/hooks.def"
};

enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* --- states ----------------------------------------------------------------------------------- */

static struct world world;

/* What another thread does between begin and end of a call. */
static struct {
    pthread_t thread;
    sem_t begun, may_end;
    CUstreamCaptureMode mode;
    CUcontext doomed;
    CUresult end;
} other;

/* A stream that captures, while calls name the legacy stream. */
static CUstream blocking;

static void nothing(void)
{
}

static void end_nothing(CUresult *capture)
{
    (void)capture;
}

static void no_context(void)
{
    MUST(cu.cuCtxSetCurrent(NULL));
}

static void other_device(void)
{
    MUST(cu.cuCtxSetCurrent(world.second));
}

static void *destroy(void *unused)
{
    (void)unused;
    MUST(cu.cuCtxDestroy(other.doomed));
    return NULL;
}

static void destroyed(void)
{
    MUST(cu.cuCtxCreate(&other.doomed, 0, 0));
    MUST(pthread_create(&other.thread, NULL, destroy, NULL));
    MUST(pthread_join(other.thread, NULL));
}

/* So that the stack of contexts does not grow. */
static void end_destroyed(CUresult *capture)
{
    CUcontext popped;
    (void)capture;
    (void)cu.cuCtxPopCurrent(&popped);
}

static void capture_here(CUstreamCaptureMode mode)
{
    MUST(cu.cuStreamBeginCapture(world.stream, mode));
}

static void capture_global(void)
{
    capture_here(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void capture_local(void)
{
    capture_here(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void capture_relaxed(void)
{
    capture_here(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void capture_blocking(void)
{
    MUST(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    MUST(cu.cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    world.legacy = true;
}

static void end_blocking(CUresult *capture)
{
    CUgraph graph = NULL;
    world.legacy = false;
    *capture = cu.cuStreamEndCapture(blocking, &graph);
    if (graph != NULL) {
        MUST(cu.cuGraphDestroy(graph));
    }
    MUST(cu.cuStreamDestroy(blocking));
}

static void end_here(CUresult *capture)
{
    CUgraph graph = NULL;
    *capture = world.stream != NULL ? cu.cuStreamEndCapture(world.stream, &graph) : CUDA_SUCCESS;
}

static void *capture_there(void *unused)
{
    (void)unused;
    CUstream stream;
    CUgraph graph = NULL;
    MUST(cu.cuCtxSetCurrent(world.context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamBeginCapture(stream, other.mode));
    (void)sem_post(&other.begun);
    (void)sem_wait(&other.may_end);
    other.end = cu.cuStreamEndCapture(stream, &graph);
    return NULL;
}

static void capture_elsewhere(CUstreamCaptureMode mode)
{
    other.mode = mode;
    MUST(sem_init(&other.begun, 0, 0));
    MUST(sem_init(&other.may_end, 0, 0));
    MUST(pthread_create(&other.thread, NULL, capture_there, NULL));
    (void)sem_wait(&other.begun);
}

static void global_elsewhere(void)
{
    capture_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void local_elsewhere(void)
{
    capture_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void end_elsewhere(CUresult *capture)
{
    (void)sem_post(&other.may_end);
    MUST(pthread_join(other.thread, NULL));
    *capture = other.end;
}

/* An earlier error of the device's: from then on every call returns it. No program can clear it on
 * a real one, so the state is there on the simulated GPU alone. */
static void lose(void)
{
    int (*fail)(const char *function, uint64_t call_number, int error);
    void *address = dlsym(cu.library, "simgpu_fail");
    EXPECT(address != NULL);
    memcpy(&fail, &address, sizeof fail);
    MUST(fail("any", 0, CUDA_ERROR_ILLEGAL_ADDRESS));
}

static void end_lost(CUresult *capture)
{
    void (*clear)(void);
    void *address = dlsym(cu.library, "simgpu_fail_clear");
    (void)capture;
    EXPECT(address != NULL);
    memcpy(&clear, &address, sizeof clear);
    clear();
}

static const struct state {
    const char *name;
    void (*begin)(void);
    void (*end)(CUresult *capture);
    enum kind {
        USUAL,
        BARE,          /* before cuInit */
        SIMULATED,     /* on a real GPU there is no such state, or calls in it need not come back */
        HOST_FUNCTION, /* likewise; the driver makes the call, in cuLaunchHostFunc */
    } kind;
} states[] = {
    {"not-initialised", nothing, end_nothing, BARE},
    {"no-context", no_context, end_nothing, USUAL},
    {"context", nothing, end_nothing, USUAL},
    {"other-device", other_device, end_nothing, USUAL},
    {"destroyed-context", destroyed, end_destroyed, USUAL},
    {"capture-global", capture_global, end_here, USUAL},
    {"capture-thread-local", capture_local, end_here, USUAL},
    {"capture-relaxed", capture_relaxed, end_here, USUAL},
    {"implicit-capture", capture_blocking, end_blocking, USUAL},
    {"elsewhere-global", global_elsewhere, end_elsewhere, USUAL},
    {"elsewhere-thread-local", local_elsewhere, end_elsewhere, USUAL},
    {"lost-device", lose, end_lost, SIMULATED},
    {"host-function", nothing, end_nothing, HOST_FUNCTION},
};

enum { STATES = sizeof states / sizeof states[0] };

/* --- calls ------------------------------------------------------------------------------------ */

/* Every parameter of these functions is an integer, a pointer or a structure of eight bytes: each
 * takes a register or eight bytes of the stack, and what is passed beyond the last is not looked
 * at. */
typedef CUresult (*any_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static CUresult call(const struct function *function, void *address, bool valid)
{
    uint64_t with[MOST_ARGUMENTS] = {0};
    char text[1024];
    (void)snprintf(text, sizeof text, "%s", function->parameters + 1);
    text[strlen(text) - 1] = '\0';
    char *rest = NULL;
    int count = 0;
    for (char *one = strtok_r(text, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        EXPECT(count < MOST_ARGUMENTS);
        with[count++] = world_argument(&world, function->symbol, one, valid);
    }
    any_function run;
    memcpy(&run, &address, sizeof run);
    return run(with[0], with[1], with[2], with[3], with[4], with[5], with[6], with[7], with[8],
               with[9], with[10], with[11]);
}

static bool captures(const struct state *state)
{
    return state->end == end_here || state->end == end_blocking || state->end == end_elsewhere;
}

struct made_call {
    const struct function *function;
    void *address;
    bool valid;
    CUresult result;
};

static void CUDA_CB make_call(void *argument)
{
    struct made_call *made = argument;
    made->result = call(made->function, made->address, made->valid);
}

static CUresult call_in_host_function(const struct function *function, void *address, bool valid)
{
    struct made_call made = {.function = function, .address = address, .valid = valid};
    MUST(cu.cuLaunchHostFunc(NULL, make_call, &made));
    MUST(cu.cuCtxSynchronize());
    return made.result;
}

/* Structures of more than eight bytes are passed by value; the resolver is no function of a state;
 * and what a reset in the midst of a capture leaves behind is no state. */
static bool is_left_out(const char *symbol, const struct state *state)
{
    return (captures(state) && strncmp(symbol, "cuDevicePrimaryCtxReset", 23) == 0) ||
           strncmp(symbol, "cuIpcOpenMemHandle", 18) == 0 ||
           strncmp(symbol, "cuGetProcAddress", 16) == 0;
}

/* Calls that ended the program on an H200 (driver 580), or never came back: no answers. */
static bool is_fatal(const char *symbol, bool valid)
{
    return valid ? strcmp(symbol, "cuCtxCreate") == 0
                 : strcmp(symbol, "cuMemPoolSetAttribute") == 0 ||
                       strncmp(symbol, "cuMemcpy3DPeer", 14) == 0;
}

static void ask(int number, const struct state *state, bool valid)
{
    const struct function *function = &functions[number];
    void *address = dlsym(cu.library, function->symbol);
    CUresult capture = CUDA_SUCCESS;
    if (address == NULL || is_left_out(function->symbol, state) ||
        is_fatal(function->symbol, valid)) {
        return;
    }
    if (state->kind != BARE) {
        world_begin(&world, function->symbol);
    }
    state->begin();
    (void)printf("%d,%s,%s,%s,", number, function->symbol, valid ? "valid" : "bad", state->name);
    (void)fflush(stdout);
    CUresult result = state->kind == HOST_FUNCTION ? call_in_host_function(function, address, valid)
                                                   : call(function, address, valid);
    (void)printf("%d", (int)result);
    world_called(&world, function->symbol, result);
    state->end(&capture);
    if (captures(state)) {
        (void)printf("/%d", (int)capture);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    if (state->kind != BARE) {
        world_end(&world);
    }
}

int main(int argc, char **argv)
{
    const struct state *state = NULL;
    EXPECT(argc >= 2);
    for (int i = 0; i < STATES; i++) {
        if (strcmp(argv[1], "list") == 0) {
            (void)printf("%s\n", states[i].name);
        } else if (strcmp(argv[1], states[i].name) == 0) {
            state = &states[i];
        }
    }
    if (strcmp(argv[1], "list") == 0) {
        return 0;
    }
    EXPECT(state != NULL);
    world_open();
    if (state->kind >= SIMULATED && dlsym(cu.library, "simgpu_fail") == NULL) {
        return 0;
    }
    if (state->kind != BARE) {
        world_first(&world);
        if (state->begin == other_device && world.second == world.context) {
            return 0; /* there is one device alone */
        }
    }
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i < FUNCTIONS; i++) {
        ask(i, state, true);
        ask(i, state, false);
    }
    return 0;
}
