/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory of a simulated device is used, and by which processes, as seen from outside the
 * driver. See usage.h. */
#include "usage.h"

#include "../driver/account.h"
#include "../driver/settings.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* Opening the account takes a line of the shared file. So it is opened at the first query, not at
 * nvmlInit: most processes that load NVML never query. */
static void open_shared(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, sim_account_open);
}

/* A function of the driver double, if that is loaded already: NVML never loads it. */
static uint64_t ask_driver(const char *function, int device)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        return 0;
    }
    uint64_t (*ask)(int) = (uint64_t(*)(int))dlsym(library, function);
    uint64_t bytes = ask ? ask(device) : 0;
    dlclose(library);
    return bytes;
}

uint64_t usage_bytes(int device)
{
    if (*sim_settings.shared) {
        open_shared();
        return sim_account_used_by_all(device);
    }
    return ask_driver("simgpu_used_bytes_all", device);
}

unsigned usage_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes)
{
    if (*sim_settings.shared) {
        open_shared();
        return sim_account_processes(device, capacity, pids, bytes);
    }
    uint64_t own_bytes = ask_driver("simgpu_used_bytes", device);
    if (own_bytes == 0) {
        return 0;
    }
    if (capacity > 0) {
        pids[0] = (uint32_t)getpid();
        bytes[0] = own_bytes;
    }
    return 1;
}
