/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a group, told by its standard input what to do, a line at a time; it answers each
 * with a line. Sizes are in MiB.
 *
 *   alloc N    the block's number, or "refused"
 *   free I     done
 *   fill N     allocates blocks of N until it is refused: how many it got
 *   drop       frees all: done
 *   write I    fills the block with a pattern of its own: done
 *   check I    good, or bad
 *   info       what cuMemGetInfo says is free, and the total
 *   used       what the device counts for this process
 *   churn S    allocates and frees at random for ever
 *
 * group_job watch: no member. At "peak" it says the most that the device counted for all since the
 * last time, which it looks at all the time. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

enum { BLOCKS = 4096, WORDS = 256 };

static struct driver cu;
static struct block {
    CUdeviceptr at;
    size_t bytes;
} blocks[BLOCKS];

static uint64_t (*counted(const char *name))(int)
{
    uint64_t (*function)(int) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, name) : NULL;
    EXPECT(address != NULL);
    memcpy(&function, &address, sizeof function);
    return function;
}

/* ---- a member ---- */

static int take(size_t bytes)
{
    int i = 0;
    while (i < BLOCKS && blocks[i].at != 0) {
        i++;
    }
    EXPECT(i < BLOCKS);
    const CUresult result = cu.cuMemAlloc(&blocks[i].at, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        blocks[i].at = 0;
        return -1;
    }
    MUST(result);
    blocks[i].bytes = bytes;
    return i;
}

static void give(int i)
{
    MUST(cu.cuMemFree(blocks[i].at));
    blocks[i].at = 0;
}

static void drop(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at != 0) {
            give(i);
        }
    }
}

static void pattern(int i, size_t part, uint64_t words[WORDS])
{
    uint64_t state = (uint64_t)getpid() * 1000003 + (uint64_t)i * 997 + part;
    for (int w = 0; w < WORDS; w++) {
        words[w] = next_random(&state);
    }
}

static void write_block(int i)
{
    uint64_t words[WORDS];
    for (size_t part = 0; part < blocks[i].bytes / MIB; part++) {
        pattern(i, part, words);
        MUST(cu.cuMemcpyHtoD(blocks[i].at + part * MIB, words, sizeof words));
    }
}

static int check_block(int i)
{
    uint64_t words[WORDS], found[WORDS];
    for (size_t part = 0; part < blocks[i].bytes / MIB; part++) {
        pattern(i, part, words);
        MUST(cu.cuMemcpyDtoH(found, blocks[i].at + part * MIB, sizeof found));
        if (memcmp(words, found, sizeof found) != 0) {
            return 0;
        }
    }
    return 1;
}

static void churn(uint64_t state)
{
    for (;;) {
        const int i = (int)(next_random(&state) % 24);
        if (blocks[i].at != 0) {
            give(i);
        } else {
            (void)take((next_random(&state) % 48 + 1) * MIB);
        }
    }
}

static void obey(const char *verb, int number)
{
    size_t free_bytes = 0, total_bytes = 0;
    int count = 0;
    if (strcmp(verb, "alloc") == 0) {
        count = take((size_t)number * MIB);
        (void)(count < 0 ? puts("refused") : printf("%d\n", count));
    } else if (strcmp(verb, "fill") == 0) {
        while (take((size_t)number * MIB) >= 0) {
            count++;
        }
        (void)printf("%d\n", count);
    } else if (strcmp(verb, "check") == 0) {
        (void)puts(check_block(number) ? "good" : "bad");
    } else if (strcmp(verb, "info") == 0) {
        MUST(cu.cuMemGetInfo(&free_bytes, &total_bytes));
        (void)printf("%zu %zu\n", free_bytes / MIB, total_bytes / MIB);
    } else if (strcmp(verb, "used") == 0) {
        (void)printf("%" PRIu64 "\n", counted("simgpu_used_bytes")(0) / MIB);
    } else {
        if (strcmp(verb, "free") == 0) {
            give(number);
        } else if (strcmp(verb, "drop") == 0) {
            drop();
        } else if (strcmp(verb, "write") == 0) {
            write_block(number);
        } else {
            EXPECT(strcmp(verb, "churn") == 0);
            churn((uint64_t)number);
        }
        (void)puts("done");
    }
}

/* ---- who watches ---- */

static atomic_ullong peak_bytes;

static void *look(void *unused)
{
    uint64_t (*all)(int) = counted("simgpu_used_bytes_all");
    (void)unused;
    for (;;) {
        const unsigned long long now = all(0);
        unsigned long long peak = atomic_load(&peak_bytes);
        while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
        }
        (void)usleep(200);
    }
    return NULL;
}

static void watch(void)
{
    char line[64];
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, look, NULL));
    (void)puts("ready");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        (void)printf("%llu\n", atomic_exchange(&peak_bytes, 0) / MIB);
        (void)fflush(stdout);
    }
}

/* The group may have no room for a context at this moment. */
static void begin(CUcontext *context)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    cu = driver_open();
    MUST(cu.cuInit(0));
    for (int turn = 0; result == CUDA_ERROR_OUT_OF_MEMORY && turn < 4000; turn++) {
        result = cu.cuDevicePrimaryCtxRetain(context, 0);
        (void)usleep(result == CUDA_SUCCESS ? 0 : 5000);
    }
    MUST(result);
    MUST(cu.cuCtxSetCurrent(*context));
}

int main(int argc, char **argv)
{
    char line[64], verb[16];
    CUcontext context;
    /* Where the test is killed, nobody is left to end what runs for ever. */
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
    if (argc > 1 && strcmp(argv[1], "watch") == 0) {
        cu = driver_open();
        MUST(cu.cuInit(0));
        watch();
        return 0;
    }
    begin(&context);
    (void)puts("ready");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        int number = 0;
        EXPECT(sscanf(line, "%15s %d", verb, &number) >= 1);
        obey(verb, number);
        (void)fflush(stdout);
    }
    return 0;
}
