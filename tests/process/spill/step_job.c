/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a training, each like the last, of which more lives at its fullest than the cap allows:
 * layers keep an activation each until they come back to it in the opposite order, and the state of
 * an optimizer is used when all is over. What is used must be as it was written.
 *
 * Arguments: how many steps, and "told" where memshim is told when one begins. */
#include <dlfcn.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { LAYERS = 8, STATES = 4, WORK = 4 };
#define ACTIVATION_BYTES (10 * MIB)
#define STATE_BYTES      (16 * MIB)
#define LOOK_BYTES       (64 * KIB)

static struct driver cu;
static CUstream stream;

struct block {
    CUdeviceptr at;
    size_t bytes;
    unsigned char byte;
};

static void fill(struct block *block, unsigned char byte)
{
    block->byte = byte;
    MUST(cu.cuMemsetD8Async(block->at, byte, block->bytes, stream));
}

static void check(const struct block *block)
{
    static unsigned char seen[LOOK_BYTES];
    MUST(cu.cuMemcpyDtoHAsync(seen, block->at + block->bytes - sizeof seen, sizeof seen, stream));
    MUST(cu.cuStreamSynchronize(stream));
    for (size_t i = 0; i < sizeof seen; i++) {
        if (seen[i] != block->byte) {
            (void)fprintf(stderr, "byte %zu is %02x, not %02x\n", i, seen[i], block->byte);
            exit(1);
        }
    }
}

/* Never inline: each layer calls from a place of its own, as a model's layers do. */
static __attribute__((noinline)) struct block make(size_t bytes)
{
    struct block block = {.bytes = bytes};
    MUST(cu.cuMemAlloc(&block.at, bytes));
    return block;
}

/* What it computes in passing. */
static __attribute__((noinline)) void work(void)
{
    for (int i = 0; i < WORK; i++) {
        struct block block = make(LOOK_BYTES);
        fill(&block, 1);
        check(&block);
        MUST(cu.cuMemFree(block.at));
    }
}

static struct block activations[LAYERS];

#define LAYER(n)                                             \
    static __attribute__((noinline)) void forward_##n(void)  \
    {                                                        \
        activations[n] = make(ACTIVATION_BYTES);             \
        fill(&activations[n], 10 + (n));                     \
        work();                                              \
    }                                                        \
    static __attribute__((noinline)) void backward_##n(void) \
    {                                                        \
        work();                                              \
        check(&activations[n]);                              \
        MUST(cu.cuMemFree(activations[n].at));               \
    }
LAYER(0)
LAYER(1)
LAYER(2)
LAYER(3)
LAYER(4)
LAYER(5)
LAYER(6)
LAYER(7)

static void train(struct block *states, unsigned char byte)
{
    static void (*const forward[])(void) = {forward_0, forward_1, forward_2, forward_3,
                                            forward_4, forward_5, forward_6, forward_7};
    static void (*const backward[])(void) = {backward_0, backward_1, backward_2, backward_3,
                                             backward_4, backward_5, backward_6, backward_7};
    for (int n = 0; n < LAYERS; n++) {
        forward[n]();
    }
    for (int n = LAYERS; n-- > 0;) {
        backward[n]();
    }
    work();
    for (int i = 0; i < STATES; i++) {
        check(&states[i]);
        fill(&states[i], byte);
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    struct block states[STATES];
    void (*step)(void) = NULL;
    EXPECT(argc == 2 || argc == 3);
    if (argc == 3) {
        EXPECT(strcmp(argv[2], "told") == 0);
        *(void **)&step = dlsym(RTLD_DEFAULT, "memshim_step");
    }
    cu = driver_use(&context);
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STATES; i++) {
        states[i] = make(STATE_BYTES);
        fill(&states[i], 0);
    }
    for (unsigned long n = strtoul(argv[1], NULL, 10); n > 0; n--) {
        if (step != NULL) {
            step();
        }
        train(states, (unsigned char)n);
    }
    (void)printf("all as it was written\n");
    return 0;
}
