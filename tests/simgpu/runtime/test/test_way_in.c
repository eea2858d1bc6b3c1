/* SPDX-License-Identifier: Apache-2.0 */
/* How the runtime double finds the driver, as seen by a stub in the driver's place: lazily, by
 * dlopen, through cuGetProcAddress_v2, each name once for each flavour, with the right version. */
#include "check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"

static void *symbol_of_stub(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static size_t asked(const struct stub_question **out)
{
    size_t (*ask)(const struct stub_question **) =
        (size_t(*)(const struct stub_question **))symbol_of_stub("stub_questions");
    cr_assert_not_null(ask);
    return ask(out);
}

static int was_asked(const char *symbol, int version, unsigned long long flags)
{
    const struct stub_question *question = NULL;
    size_t count = asked(&question);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(question[i].symbol, symbol) == 0 && question[i].version == version &&
            question[i].flags == flags) {
            return 1;
        }
    }
    return 0;
}

Test(way_in, nothing_is_loaded_before_the_first_call)
{
    int count = 0;
    cr_assert_null(symbol_of_stub("cuGetProcAddress_v2"));
    OK(cudaGetLastError());
    cr_assert_str_eq(cudaGetErrorName(cudaSuccess), "cudaSuccess");
    cr_assert_null(symbol_of_stub("cuGetProcAddress_v2"), "errors need no driver");
    OK(cudaGetDeviceCount(&count));
    cr_assert_eq(count, 1);
    cr_assert_not_null(symbol_of_stub("cuGetProcAddress_v2"));
}

Test(way_in, names_versions_and_flavours)
{
    int count = 0;
    OK(cudaGetDeviceCount(&count));
    cr_assert(was_asked("cuMemAlloc", 3020, cudaEnableLegacyStream));
    cr_assert(was_asked("cuLaunchKernel", 4000, cudaEnableLegacyStream));
    cr_assert(was_asked("cuLaunchKernel", 7000, cudaEnablePerThreadDefaultStream));
    cr_assert(was_asked("cuMemcpyHtoDAsync", 3020, cudaEnableLegacyStream));
    cr_assert(was_asked("cuMemcpyHtoDAsync", 7000, cudaEnablePerThreadDefaultStream));
    cr_assert(was_asked("cuGraphLaunch", 10000, cudaEnablePerThreadDefaultStream));
    cr_assert(was_asked("cuMemcpyBatchAsync", 12080, cudaEnableLegacyStream));
    cr_assert(was_asked("cuMemcpyBatchAsync", 13000, cudaEnableLegacyStream));
    cr_assert(was_asked("cuMemAllocAsync", 11020, cudaEnableLegacyStream));
}

Test(way_in, each_question_is_asked_once_and_cuInit_called_once)
{
    const struct stub_question *question = NULL;
    void *pointer = NULL;
    OK(cudaMalloc(&pointer, 77));
    cr_assert_eq((size_t)pointer, 77, "cudaMalloc is cuMemAlloc");
    OK(cudaMalloc(&pointer, 78));
    size_t count = asked(&question);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            cr_assert(question[i].flags != question[j].flags ||
                          question[i].version != question[j].version ||
                          strcmp(question[i].symbol, question[j].symbol) != 0,
                      "%s", question[i].symbol);
        }
    }
    int (*initializations)(void) = (int (*)(void))symbol_of_stub("stub_initializations");
    cr_assert_eq(initializations(), 1);
}

Test(way_in, what_the_driver_lacks_is_said)
{
    cudaStream_t stream = NULL;
    void *pointer = NULL;
    setenv("STUB_LACKS", "cuMemAlloc", 1);
    EXPECT(cudaMalloc(&pointer, 77), cudaErrorCallRequiresNewerDriver);
    EXPECT(cudaStreamCreate(&stream), cudaErrorCallRequiresNewerDriver);
    EXPECT(cudaGetLastError(), cudaErrorCallRequiresNewerDriver);
}

Test(way_in, a_driver_that_is_too_old_is_refused)
{
    int count = 7;
    setenv("STUB_VERSION", CUDART_VERSION >= 13000 ? "12080" : "11080", 1);
    EXPECT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cr_assert_eq(count, 0);
}
