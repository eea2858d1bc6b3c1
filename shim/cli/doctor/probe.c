/* SPDX-License-Identifier: Apache-2.0 */
/* Tries in a throw-away process how the driver handles host memory. */
#include "shim/cli/doctor/probe.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/commands.h"
#include "shim/cli/doctor/driver.h"
#include "shim/tables/probe_codes.h"

#define LONGEST_SECONDS 10u
#define PATTERN         0xa5a5a5a5u
#define PIECE_BYTES     ((size_t)64 << 10)

static void give_up(int signal)
{
    (void)signal;
    _exit(MS_PROBE_NO_START_CODE);
}

/* On a driver that nobody uses (persistence mode off), initialization takes seconds for each
 * device. Slowness there is no answer to the question, so it has a longer limit. */
static void limit_start(void)
{
    (void)signal(SIGALRM, give_up);
    (void)alarm(LONGEST_SECONDS);
}

/* A device may hang over the question itself: then the signal ends this process. */
static void limit_answer(void)
{
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(LONGEST_SECONDS);
}

/* What the driver's answer to the question means. Only a documented refusal, or a documented fault
 * of the access, is a no: other errors may be gone the next time (cuda.h, CUresult). */
static int code_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return MS_PROBE_WORKS_CODE;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
        return MS_PROBE_REFUSED_CODE;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        return MS_PROBE_FAULT_CODE;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return MS_PROBE_NO_MEMORY_CODE;
    default:
        return MS_PROBE_ERROR_CODE;
    }
}

/* The device writes the pattern into device memory, copies it to the host's, within that, and back;
 * any byte that is lost shows. `half`: of the bytes. */
static CUresult write_there_and_back(CUdeviceptr host, CUdeviceptr device, uint32_t *words,
                                     size_t half)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    const size_t bytes = 2 * half;
    CUresult result = CUDA_SUCCESS;
#define STEP(call) result = result == CUDA_SUCCESS ? driver->call : result
    STEP(cuMemsetD32_v2(host, ~PATTERN, bytes / sizeof(*words)));
    STEP(cuMemsetD32_v2(device, PATTERN, bytes / sizeof(*words)));
    STEP(cuMemcpyDtoD_v2(host, device, half));
    STEP(cuMemcpyDtoD_v2(host + half, host, half));
    STEP(cuMemsetD32_v2(device, 0, bytes / sizeof(*words)));
    STEP(cuMemcpyDtoD_v2(device, host, bytes));
    STEP(cuCtxSynchronize());
    STEP(cuMemcpyDtoH_v2(words, device, bytes));
#undef STEP
    return result;
}

/* All of it, piece by piece, so that a simulated device that keeps no large contents answers
 * truthfully, too. */
static int access_host(CUdeviceptr host, CUdeviceptr device, uint32_t *words, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0; result == CUDA_SUCCESS && at < bytes; at += PIECE_BYTES) {
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        result =
            write_there_and_back(host + at, device + at, words + at / sizeof(*words), piece / 2);
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < bytes / sizeof(*words); i++) {
        if (words[i] != PATTERN) {
            return MS_PROBE_WRONG_CODE;
        }
    }
    return code_of(result);
}

/* The library only asks if the driver offered such memory. If the driver does not offer it now, it
 * failed to say so. */
static bool is_offered(CUdevice device)
{
    CUmemLocation_v1 location;
    return ms_cli_host_location(device, &location);
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
        return MS_PROBE_NO_DEVICE_CODE;
    }
    limit_answer();
    if (!is_offered(device)) {
        return MS_PROBE_ERROR_CODE;
    }
    result = ms_cli_map_host(device, 1, &host, &bytes);
    if (result != CUDA_SUCCESS) {
        return code_of(result);
    }
    uint32_t *words = malloc(bytes);
    if (words == NULL) {
        return MS_PROBE_NO_MEMORY_CODE;
    }
    result = ms_cli_driver.cuMemAlloc_v2(&scratch, bytes);
    int code = result == CUDA_ERROR_OUT_OF_MEMORY ? MS_PROBE_NO_MEMORY_CODE
               : result != CUDA_SUCCESS           ? MS_PROBE_ERROR_CODE
                                                  : access_host(host, scratch, words, bytes);
    free(words);
    return code; /* the driver frees the rest when the process ends */
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
        return MS_PROBE_NO_DEVICE_CODE;
    }
    for (int i = 0; i < count; i++) {
        CUdevice device = 0;
        int maps = 0;
        if (ms_cli_driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            ms_cli_driver.cuDeviceGetAttribute(
                &maps, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) !=
                CUDA_SUCCESS) {
            return MS_PROBE_ERROR_CODE;
        }
        if (!maps) {
            return MS_PROBE_NO_MAPPING_CODE;
        }
    }
    return MS_PROBE_WORKS_CODE;
}
