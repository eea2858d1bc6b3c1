/* SPDX-License-Identifier: Apache-2.0 */
/* The road of the runtime: it links nothing of the driver. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static void must_find(void *address, const char *name)
{
    if (address == NULL) {
        (void)fprintf(stderr, "the driver lacks %s\n", name);
        exit(1);
    }
}

struct driver driver_open(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *address = dlsym(library, "cuGetProcAddress_v2");
    must_find(address, "cuGetProcAddress_v2");
    PFN_cuGetProcAddress_v12000 resolve;
    memcpy(&resolve, &address, sizeof resolve);

    struct driver driver;
    CUdriverProcAddressQueryResult found;
#define DRIVER_RESOLVE(name, version)                                             \
    address = NULL;                                                               \
    (void)resolve(#name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found); \
    must_find(address, #name);                                                    \
    memcpy(&driver.name, &address, sizeof address);
    DRIVER_FUNCTIONS(DRIVER_RESOLVE)
#undef DRIVER_RESOLVE
    return driver;
}
