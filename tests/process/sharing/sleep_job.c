/* SPDX-License-Identifier: Apache-2.0 */
/* A server that sleeps: its weights' memory goes to others for a while, and comes back at the same
 * addresses. Argument: "maps", where it maps its memory itself (vLLM), or "preload", where a
 * library before the runtime does so for it (torch_memory_saver); and "pressed" or not: whether
 * blocks that find no room stand beside its weights. What memshim says of each moment goes to
 * stderr. */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#include "say.h"
#include "sleep_saver.h"

#define MEMSHIM_WEAK
#include "shim/memshim.h"

#define REGION      (4 * MIB)
#define REGIONS     4u
#define ROOM        (24 * MIB) /* fits only while they sleep */
#define BLOCK       (8 * MIB)
#define MOST_BLOCKS 5u /* two fit */

static struct {
    CUresult (*sleep)(void), (*wake)(void);
    int (*has_its_own)(void);
} saver = {saver_sleep, saver_wake, saver_has_its_own};

static int (*runtime_alloc)(void **pointer, size_t bytes); /* null: the saver's own */

static void say_figures(const char *moment)
{
    struct memshim_stats stats = {.size = sizeof stats};
    if (memshim_stats != NULL && memshim_stats(0, &stats) == 0) {
        (void)fprintf(stderr, "{\"event\": \"%s\", \"live\": %llu, \"used\": %llu}\n", moment,
                      (unsigned long long)stats.live_bytes, (unsigned long long)stats.used_bytes);
    }
}

static void must_hold(CUdeviceptr at, size_t bytes, unsigned char value)
{
    unsigned char *contents = malloc(bytes);
    MUST(cuMemcpyDtoH(contents, at, bytes));
    for (size_t i = 0; i < bytes; i++) {
        EXPECT(contents[i] == value);
    }
    free(contents);
}

__attribute__((noinline)) static CUdeviceptr load_weights(unsigned char value)
{
    CUdeviceptr at = 0;
    if (runtime_alloc != NULL) {
        void *pointer = NULL;
        MUST(runtime_alloc(&pointer, REGION));
        at = (CUdeviceptr)(uintptr_t)pointer;
    } else {
        MUST(saver_new(&at, REGION));
    }
    MUST(cuMemsetD8(at, value, REGION));
    return at;
}

static void press(void)
{
    CUdeviceptr blocks[MOST_BLOCKS] = {0};
    unsigned count = 0;
    while (count < MOST_BLOCKS && cuMemAlloc(&blocks[count], BLOCK) == CUDA_SUCCESS) {
        MUST(cuMemsetD8(blocks[count], (unsigned char)(100 + count), BLOCK));
        count++;
    }
    (void)fprintf(stderr, "{\"event\": \"pressed\", \"blocks\": %u}\n", count);
    EXPECT(saver.has_its_own());
    for (unsigned i = 0; i < count; i++) {
        must_hold(blocks[i], BLOCK, (unsigned char)(100 + i));
        MUST(cuMemFree(blocks[i]));
    }
}

/* A library that is preloaded after the program's own symbols were bound cannot stand before them:
 * so the program asks as the loader would. */
static void use_preload(void)
{
    *(void **)&runtime_alloc = dlsym(RTLD_DEFAULT, "cudaMalloc");
    *(void **)&saver.sleep = dlsym(RTLD_NEXT, "saver_sleep");
    *(void **)&saver.wake = dlsym(RTLD_NEXT, "saver_wake");
    *(void **)&saver.has_its_own = dlsym(RTLD_NEXT, "saver_has_its_own");
    EXPECT(runtime_alloc && saver.sleep && saver.wake && saver.has_its_own);
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr weights[REGIONS];
    CUdeviceptr cache = 0;
    EXPECT(argc == 3);
    if (strcmp(argv[1], "preload") == 0) {
        use_preload();
    }
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < REGIONS; i++) {
        weights[i] = load_weights((unsigned char)(i + 1));
    }
    say_figures("awake");
    for (int round = 0; round < 2; round++) {
        MUST(saver.sleep());
        say_figures("asleep");
        MUST(cuMemAlloc(&cache, ROOM));
        MUST(cuMemsetD8(cache, 99, ROOM));
        say_figures("others");
        MUST(cuMemFree(cache));
        MUST(saver.wake());
        say_figures("again");
        if (strcmp(argv[2], "pressed") == 0) {
            press();
        }
        for (unsigned i = 0; i < REGIONS; i++) {
            must_hold(weights[i], REGION, (unsigned char)(i + 1));
        }
    }
    (void)printf("kept\n");
    return 0;
}
