/* SPDX-License-Identifier: Apache-2.0 */
/* A small trainer: layers with parameters, gradients and optimizer state that stay, activations
 * that come and go with the batch's length, all in the way a training step asks for memory. Reaches
 * the driver as the runtime does, so it runs on a real GPU as on the simulated one.
 *
 * trainer [--steps N] [--layers N] [--width N] [--batch N] [--seed N]. Prints a line of JSON a
 * step. Out of memory ends it with status 3, as a training script would end. */
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

#define OUT_OF_MEMORY_STATUS 3

struct options {
    uint64_t steps, layers, width, batch, seed;
};

struct layer {
    CUdeviceptr weights, gradient, moments; /* two moments a weight, in one block */
    CUdeviceptr activation, probabilities;  /* of the step */
};

static struct driver cu;
static CUstream compute, copy_out;
static uint64_t live_bytes, peak_bytes;

static uint64_t weight_bytes(const struct options *options)
{
    return options->width * options->width * 4 * sizeof(float);
}

static CUdeviceptr allocate(uint64_t bytes, const char *what)
{
    CUdeviceptr at = 0;
    CUresult result = cu.cuMemAllocAsync(&at, bytes, compute);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        (void)fprintf(stderr, "trainer: out of memory: %s wanted %llu bytes\n", what,
                      (unsigned long long)bytes);
        exit(OUT_OF_MEMORY_STATUS);
    }
    MUST(result);
    live_bytes += bytes;
    peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
    MUST(cu.cuMemsetD8Async(at, 0, bytes, compute));
    return at;
}

static void release(CUdeviceptr *at, uint64_t bytes)
{
    MUST(cu.cuMemFreeAsync(*at, compute));
    live_bytes -= bytes;
    *at = 0;
}

static void make_parameters(struct layer *layers, const struct options *options)
{
    for (uint64_t i = 0; i < options->layers; i++) {
        layers[i].weights = allocate(weight_bytes(options), "weights");
    }
}

static void forward(struct layer *layers, const struct options *options, uint64_t length)
{
    for (uint64_t i = 0; i < options->layers; i++) {
        layers[i].activation = allocate(length * options->width * 8, "an activation");
        layers[i].probabilities = allocate(length * length * 4, "attention probabilities");
    }
}

static void backward(struct layer *layers, const struct options *options, uint64_t length)
{
    for (uint64_t i = options->layers; i-- > 0;) {
        CUdeviceptr upstream = allocate(length * options->width * 4, "an upstream gradient");
        if (layers[i].gradient == 0) {
            layers[i].gradient = allocate(weight_bytes(options), "a gradient");
        }
        release(&layers[i].probabilities, length * length * 4);
        release(&layers[i].activation, length * options->width * 8);
        release(&upstream, length * options->width * 4);
    }
}

/* Adam's state appears at the first step, as in a framework. */
static void optimizer_step(struct layer *layers, const struct options *options)
{
    for (uint64_t i = 0; i < options->layers; i++) {
        if (layers[i].moments == 0) {
            layers[i].moments = allocate(2 * weight_bytes(options), "optimizer state");
        }
        MUST(cu.cuMemsetD8Async(layers[i].moments, 1, weight_bytes(options), compute));
        release(&layers[i].gradient, weight_bytes(options));
    }
}

/* The loss goes to the host by another stream, as a logger does it. */
static void log_loss(void *host)
{
    CUevent event;
    CUdeviceptr loss = allocate(sizeof(float), "the loss");
    MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuEventRecord(event, compute));
    MUST(cu.cuStreamWaitEvent(copy_out, event, 0));
    MUST(cu.cuMemcpyDtoHAsync(host, loss, sizeof(float), copy_out));
    MUST(cu.cuMemFreeAsync(loss, copy_out));
    MUST(cu.cuEventDestroy(event));
    live_bytes -= sizeof(float);
}

static bool read_option(struct options *options, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *number;
    } known[] = {{"--steps", &options->steps},
                 {"--layers", &options->layers},
                 {"--width", &options->width},
                 {"--batch", &options->batch},
                 {"--seed", &options->seed}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char *end;
        if (strcmp(name, known[i].name) == 0 && value != NULL) {
            *known[i].number = strtoull(value, &end, 10);
            return *end == '\0' && *value != '\0';
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.steps = 20, .layers = 8, .width = 1024, .batch = 4, .seed = 1};
    for (int i = 1; i < argc; i += 2) {
        if (!read_option(&options, argv[i], argv[i + 1])) {
            (void)fprintf(stderr, "trainer: %s is not known or has no number\n", argv[i]);
            return 2;
        }
    }
    CUdevice device;
    CUcontext context;
    void *loss;
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamCreate(&copy_out, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuMemAllocHost(&loss, sizeof(float)));
    struct layer *layers = calloc(options.layers, sizeof *layers);
    EXPECT(layers != NULL);

    make_parameters(layers, &options);
    uint64_t seed = options.seed;
    for (uint64_t step = 1; step <= options.steps; step++) {
        uint64_t length = options.batch * (64 + next_random(&seed) % 448);
        forward(layers, &options, length);
        backward(layers, &options, length);
        optimizer_step(layers, &options);
        log_loss(loss);
        MUST(cu.cuStreamSynchronize(copy_out));
        (void)printf(
            "{\"event\": \"step\", \"step\": %llu, \"length\": %llu, \"live_bytes\": %llu}\n",
            (unsigned long long)step, (unsigned long long)length, (unsigned long long)live_bytes);
    }
    (void)printf("{\"event\": \"end\", \"peak_bytes\": %llu}\n", (unsigned long long)peak_bytes);
    free(layers);
    MUST(cu.cuMemFreeHost(loss));
    MUST(cu.cuDevicePrimaryCtxRelease(device));
    return 0;
}
