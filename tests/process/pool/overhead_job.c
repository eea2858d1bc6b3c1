/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes on one device. The first loads a module, and says so from inside the driver's call:
 * the file is opened there, by the fopen of this program. The second takes and gives back memory
 * when it is told. Both do what the lines of their standard input say, and answer each with a line:
 *
 *   context     makes the device's context                       -> done
 *   take MIB    allocates so much                                -> done, or refused
 *   give        frees what was taken last                        -> done
 *   together N MIB  N threads allocate so much each, all at once -> how many of them were refused
 *   free        what cuMemGetInfo says is free, in KiB           -> a number
 *   load        loads a module: says "loading" from within, and goes on after the next line
 *                                                                -> done */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "say.h"

#define MODULE       "slow.module"
#define THREADS_MOST 16u

struct taker {
    const struct driver *driver;
    size_t bytes;
    pthread_barrier_t *begin;
    pthread_t thread;
    CUresult result;
};

static void next_line(char *line, int line_bytes)
{
    if (!fgets(line, line_bytes, stdin)) {
        exit(0);
    }
    line[strcspn(line, "\n")] = '\0';
}

static void answer(const char *text)
{
    (void)printf("%s\n", text);
    (void)fflush(stdout);
}

/* Stands before the C library's for everything in this process. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    size_t length = strlen(path);
    char line[64];
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    }
    if (length >= strlen(MODULE) && strcmp(path + length - strlen(MODULE), MODULE) == 0) {
        answer("loading");
        next_line(line, sizeof line);
    }
    return real(path, mode);
}

static CUcontext context;

static void make_context(const struct driver *driver)
{
    MUST(driver->cuInit(0));
    MUST(driver->cuDevicePrimaryCtxRetain(&context, 0));
    MUST(driver->cuCtxSetCurrent(context));
}

static void say_free(const struct driver *driver)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    MUST(driver->cuMemGetInfo(&free_bytes, &total_bytes));
    (void)printf("%zu\n", free_bytes >> 10);
    (void)fflush(stdout);
}

static void *take(void *arg)
{
    struct taker *taker = arg;
    CUdeviceptr at = 0;
    MUST(taker->driver->cuCtxSetCurrent(context));
    (void)pthread_barrier_wait(taker->begin);
    taker->result = taker->driver->cuMemAlloc(&at, taker->bytes);
    return NULL;
}

static void take_together(const struct driver *driver, unsigned threads, size_t bytes)
{
    struct taker takers[THREADS_MOST];
    pthread_barrier_t begin;
    unsigned refused = 0;
    EXPECT(threads <= THREADS_MOST);
    MUST(pthread_barrier_init(&begin, NULL, threads));
    for (unsigned i = 0; i < threads; i++) {
        takers[i] = (struct taker){driver, bytes, .begin = &begin};
        MUST(pthread_create(&takers[i].thread, NULL, take, &takers[i]));
    }
    for (unsigned i = 0; i < threads; i++) {
        MUST(pthread_join(takers[i].thread, NULL));
        refused += takers[i].result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
    }
    (void)pthread_barrier_destroy(&begin);
    (void)printf("%u\n", refused);
    (void)fflush(stdout);
}

static void obey(const struct driver *driver, const char *line, const char *module)
{
    static CUdeviceptr last;
    CUmodule loaded = NULL;
    size_t mib = 0;
    unsigned threads = 0;
    if (strcmp(line, "context") == 0) {
        make_context(driver);
    } else if (sscanf(line, "take %zu", &mib) == 1) {
        CUresult result = driver->cuMemAlloc(&last, mib << 20);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        answer(result == CUDA_SUCCESS ? "done" : "refused");
        return;
    } else if (sscanf(line, "together %u %zu", &threads, &mib) == 2) {
        take_together(driver, threads, mib << 20);
        return;
    } else if (strcmp(line, "give") == 0) {
        MUST(driver->cuMemFree(last));
    } else if (strcmp(line, "free") == 0) {
        say_free(driver);
        return;
    } else {
        EXPECT(strcmp(line, "load") == 0);
        MUST(driver->cuModuleLoad(&loaded, module));
    }
    answer("done");
}

int main(int argc, char **argv)
{
    struct driver driver = driver_open();
    char line[64];
    EXPECT(argc == 2); /* where the module is */
    for (;;) {
        next_line(line, sizeof line);
        obey(&driver, line, argv[1]);
    }
}
