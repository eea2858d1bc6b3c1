/* SPDX-License-Identifier: Apache-2.0 */
/* Stands still at known states: does what its standard input says, a line at a time, and answers
 * each with what it then knows of its memory, in a line of JSON:
 *
 *   weights N, activation N   a block of N bytes, from a function of that name
 *   free                      the block that was made last
 *   born AT N, died AT N      a tensor of N bytes at that offset of it
 *   refuse N                  the same as weights, which has to fail
 *   step                      a training step begins
 *   unlock                    its trace's descriptor is closed, and the lock on it with it
 *   child                     a fork child asks for statistics, and tells steps
 *   rounds N, MS              N blocks made and given back, so many milliseconds apart
 * The end of the input ends it with the status that is its argument. */
#define MEMSHIM_WEAK
#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"
#include "shim/memshim.h"

enum { MOST_BLOCKS = 64 };

static struct driver cu;
static uint64_t (*used_bytes)(int device);
static struct {
    CUdeviceptr at;
    size_t bytes;
} blocks[MOST_BLOCKS];
static int count;

static void open_accounting(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "simgpu_used_bytes") : NULL;
    EXPECT(address != NULL);
    memcpy(&used_bytes, &address, sizeof used_bytes);
}

static __attribute__((noinline)) void hold_weights(size_t bytes)
{
    MUST(cu.cuMemAlloc(&blocks[count].at, bytes));
    blocks[count++].bytes = bytes;
}

static __attribute__((noinline)) void hold_activation(size_t bytes)
{
    MUST(cu.cuMemAlloc(&blocks[count].at, bytes));
    blocks[count++].bytes = bytes;
}

static void give_back(void)
{
    EXPECT(count > 0);
    MUST(cu.cuMemFree(blocks[--count].at));
}

static void refuse(size_t bytes)
{
    CUdeviceptr at;
    EXPECT(cu.cuMemAlloc(&at, bytes) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void make_rounds(long rounds, long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    for (long i = 0; i < rounds; i++) {
        hold_weights(MIB);
        give_back();
        (void)nanosleep(&pause, NULL);
    }
}

/* Its answers are in its exit status: it must not say anything. */
static void ask_in_child(void)
{
    int status;
    (void)fflush(stdout);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct memshim_stats stats = {.size = sizeof stats};
        int answer = memshim_stats(0, &stats);
        for (int i = 0; i < 10; i++) {
            memshim_step();
        }
        _exit(answer == -1 && stats.total_bytes == 0 ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* As programs do that close all descriptors but three. */
static void close_trace(void)
{
    int closed = 0;
    for (int fd = 3; fd < 4096; fd++) {
        char name[32], path[512];
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, path, sizeof path - 1);
        if (length > 0) {
            path[length] = '\0';
            closed += strstr(path, "/trace.mshm") != NULL && close(fd) == 0;
        }
    }
    EXPECT(closed == 1);
}

static void obey(const char *line)
{
    char word[16] = "";
    const void *base = count > 0 ? (const void *)(uintptr_t)blocks[count - 1].at : NULL;
    size_t first = 0, second = 0;
    EXPECT(count < MOST_BLOCKS);
    EXPECT(sscanf(line, "%15s %zu %zu", word, &first, &second) >= 1);
    if (strcmp(word, "weights") == 0) {
        hold_weights(first);
    } else if (strcmp(word, "activation") == 0) {
        hold_activation(first);
    } else if (strcmp(word, "free") == 0) {
        give_back();
    } else if (strcmp(word, "born") == 0) {
        memshim_range_born(0, (const char *)base + first, second);
    } else if (strcmp(word, "died") == 0) {
        memshim_range_died(0, (const char *)base + first, second);
    } else if (strcmp(word, "refuse") == 0) {
        refuse(first);
    } else if (strcmp(word, "step") == 0) {
        memshim_step();
    } else if (strcmp(word, "unlock") == 0) {
        close_trace();
    } else if (strcmp(word, "child") == 0) {
        ask_in_child();
    } else {
        EXPECT(strcmp(word, "rounds") == 0);
        make_rounds((long)first, (long)second);
    }
}

static void answer(void)
{
    struct memshim_stats stats = {.size = sizeof stats};
    uint64_t held = 0;
    for (int i = 0; i < count; i++) {
        held += blocks[i].bytes;
    }
    (void)printf("{\"pid\": %d, \"held_bytes\": %" PRIu64 ", \"device_bytes\": %" PRIu64
                 ", \"stats\": ",
                 (int)getpid(), held, used_bytes(0));
    if (memshim_stats == NULL || memshim_stats(0, &stats) != 0) {
        (void)printf("null}\n");
    } else {
        (void)printf("{\"total_bytes\": %" PRIu64 ", \"cap_bytes\": %" PRIu64
                     ", \"used_bytes\": %" PRIu64 ", \"peak_used_bytes\": %" PRIu64
                     ", \"free_bytes\": %" PRIu64 ", \"live_bytes\": %" PRIu64
                     ", \"reserved_bytes\": %" PRIu64 ", \"host_bytes\": %" PRIu64
                     ", \"spilled_bytes\": %" PRIu64 ", \"promoted_bytes\": %" PRIu64
                     ", \"refusals\": %" PRIu64 ", \"status\": %" PRIu64
                     ", \"fragmentation\": %.6f}}\n",
                     stats.total_bytes, stats.cap_bytes, stats.used_bytes, stats.peak_used_bytes,
                     stats.free_bytes, stats.live_bytes, stats.reserved_bytes, stats.host_bytes,
                     stats.spilled_bytes, stats.promoted_bytes, stats.refusals, stats.status,
                     stats.fragmentation);
    }
    (void)fflush(stdout);
}

/* A struct of an older program, and calls that cannot be answered. */
static void check_sizes(void)
{
    struct {
        struct memshim_stats stats;
        uint64_t more;
    } longer = {.stats.size = sizeof longer, .more = 1};
    struct memshim_stats whole = {.size = sizeof whole};
    struct memshim_stats part = {.size = offsetof(struct memshim_stats, used_bytes)};
    struct memshim_stats none = {.size = 0};
    EXPECT(memshim_stats(0, &whole) == 0 && whole.size == sizeof whole);
    EXPECT(memshim_stats(0, &part) == 0 && part.cap_bytes == whole.cap_bytes);
    EXPECT(part.used_bytes == 0 && part.fragmentation == 0);
    EXPECT(memshim_stats(0, &longer.stats) == 0 && longer.more == 0);
    EXPECT(longer.stats.used_bytes == whole.used_bytes && longer.stats.size == sizeof longer);
    EXPECT(memshim_stats(0, &none) == -1 && none.total_bytes == 0);
    EXPECT(memshim_stats(0, NULL) == -1);
    EXPECT(memshim_stats(-1, &whole) == -1 && memshim_stats(1, &whole) == -1);
    EXPECT(memshim_stats(64, &whole) == -1 && memshim_stats(1 << 30, &whole) == -1);
}

int main(int argc, char **argv)
{
    char line[128];
    CUcontext context;
    struct memshim_stats early = {.size = sizeof early};
    EXPECT(memshim_stats == NULL || memshim_stats(0, &early) == -1);
    cu = driver_use(&context);
    open_accounting();
    if (memshim_stats != NULL) {
        check_sizes();
    }
    answer();
    while (fgets(line, sizeof line, stdin) != NULL) {
        obey(line);
        answer();
    }
    return argc > 1 ? atoi(argv[1]) : 0;
}
