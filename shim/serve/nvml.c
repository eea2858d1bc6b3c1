/* NVML by name. Its declarations are repeated here (NVML API reference, nvmlDeviceGetMemoryInfo,
 * nvmlDeviceGetHandleByUUID): the toolkit's headers need not have nvml.h. */
#include "shim/serve/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define NVML_OK 0

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;
static int (*handle_by_uuid)(const char *uuid, void **device);
static int (*memory_info)(void *device, struct nvml_memory *memory);

static void load_locked(void)
{
    tried = true;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return;
    }
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    *(void **)&handle_by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&memory_info = dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (!init || !handle_by_uuid || !memory_info || init() != NVML_OK) {
        memory_info = NULL;
    }
}

bool ms_nvml_used_bytes(const uint8_t *uuid, uint64_t *used_bytes)
{
    char text[48];
    snprintf(text, sizeof text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
             uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9],
             uuid[10], uuid[11], uuid[12], uuid[13], uuid[14], uuid[15]);
    pthread_mutex_lock(&lock);
    if (!tried) {
        load_locked();
    }
    bool loaded = memory_info != NULL;
    pthread_mutex_unlock(&lock);
    void *device = NULL;
    struct nvml_memory memory = {0};
    if (!loaded || handle_by_uuid(text, &device) != NVML_OK ||
        memory_info(device, &memory) != NVML_OK) {
        return false;
    }
    *used_bytes = memory.used;
    return true;
}
