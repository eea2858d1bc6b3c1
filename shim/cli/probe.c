#include "shim/cli/probe.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/cli/cli.h"
#include "shim/cli/device.h"
#include "shim/probe.h"

#define LONGEST_SECONDS 10u
#define PATTERN         0xa5a5a5a5u

static void give_up(int signal)
{
    (void)signal;
    _exit(MS_PROBE_UNKNOWN);
}

/* A driver that nobody uses yet takes seconds for each device to begin with (persistence mode off):
 * to be slow there says nothing about what is asked. */
static void limit_start(void)
{
    (void)signal(SIGALRM, give_up);
    (void)alarm(LONGEST_SECONDS);
}

/* But a device may hang over the question itself: then the signal ends this process. */
static void limit_answer(void)
{
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(LONGEST_SECONDS);
}

/* The device writes the pattern into device memory, copies it to the host's, over itself there, and
 * back; whatever does not arrive is seen. */
static int access_host(CUdeviceptr host, CUdeviceptr device, uint32_t *words, size_t bytes)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    size_t half = bytes / 2;
    bool done = driver->cuMemsetD32_v2(host, ~PATTERN, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver->cuMemsetD32_v2(device, PATTERN, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver->cuMemcpyDtoD_v2(host, device, half) == CUDA_SUCCESS &&
                driver->cuMemcpyDtoD_v2(host + half, host, half) == CUDA_SUCCESS &&
                driver->cuMemsetD32_v2(device, 0, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver->cuMemcpyDtoD_v2(device, host, bytes) == CUDA_SUCCESS &&
                driver->cuCtxSynchronize() == CUDA_SUCCESS &&
                driver->cuMemcpyDtoH_v2(words, device, bytes) == CUDA_SUCCESS;
    for (size_t i = 0; done && i < bytes / sizeof(*words); i++) {
        done = words[i] == PATTERN;
    }
    return done ? MS_PROBE_YES : MS_PROBE_NO;
}

int ms_probe_host(const char *uuid_text)
{
    CUdevice device = 0;
    CUdeviceptr host = 0, scratch = 0;
    size_t bytes = 0;
    CUresult result = CUDA_SUCCESS;
    limit_start();
    if (ms_cli_driver_load(&result) != MS_CLI_LOADED || !ms_cli_device_find(uuid_text, &device) ||
        !ms_cli_device_enter(device)) {
        return MS_PROBE_UNKNOWN;
    }
    limit_answer();
    result = ms_cli_map_host(device, 1, &host, &bytes);
    if (result != CUDA_SUCCESS) {
        /* The driver ran out of something: nothing is known then. */
        return result == CUDA_ERROR_OUT_OF_MEMORY ? MS_PROBE_UNKNOWN : MS_PROBE_NO;
    }
    uint32_t *words = malloc(bytes);
    if (words == NULL || ms_cli_driver.cuMemAlloc_v2(&scratch, bytes) != CUDA_SUCCESS) {
        free(words);
        return MS_PROBE_UNKNOWN;
    }
    int status = access_host(host, scratch, words, bytes);
    free(words);
    return status; /* the driver takes the rest when the process ends */
}

int ms_cli_probe_host(int argc, char **argv)
{
    return argc == 2 ? ms_probe_host(argv[1]) : MS_CLI_WRONG_CALL;
}

int ms_cli_probe_mapping(int argc, char **argv)
{
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    (void)argv;
    if (argc != 1) {
        return MS_CLI_WRONG_CALL;
    }
    limit_start();
    if (ms_cli_driver_load(&result) != MS_CLI_LOADED ||
        ms_cli_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        return MS_PROBE_UNKNOWN;
    }
    for (int i = 0; i < count; i++) {
        CUdevice device = 0;
        if (ms_cli_driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            !ms_cli_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
            return MS_PROBE_NO;
        }
    }
    return MS_PROBE_YES;
}
