/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, loaded by name. Its declarations are repeated here (NVML API reference,
 * nvmlDeviceGetMemoryInfo, nvmlDeviceGetHandleByUUID, nvmlSystemGetDriverVersion,
 * nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3,
 * nvmlDeviceGetMemoryLimits_v1), because the toolkit's headers may lack nvml.h. */
#include "shim/driver/nvml.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/containers/pages.h"
#include "shim/driver/next_dlsym.h"

#define NVML_OK 0

#define PROCESSES_MAX 64u

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

/* nvmlProcessInfo_t of versions 2 and 3. */
struct nvml_process {
    unsigned pid;
    unsigned long long bytes; /* all ones: not available */
    unsigned gpu_instance, compute_instance;
};

/* nvmlGetMemoryLimits_v1_t. */
struct nvml_limits {
    const char *group; /* full path of the control group */
    unsigned long long soft, hard, used;
};

typedef int (*list_t)(void *device, unsigned *count, struct nvml_process *processes);

struct nvml {
    int (*handle_by_uuid)(const char *uuid, void **device);
    int (*memory_info)(void *device, struct nvml_memory *memory);
    int (*driver_version)(char *version, unsigned bytes);
    list_t compute, graphics;                                /* null: an old driver */
    int (*limits)(void *device, struct nvml_limits *limits); /* CUDA 13.4; else null */
};

static struct nvml missing; /* stands for a library that was looked for and not found */
static struct nvml *_Atomic published;

static bool load(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return false;
    }
    int (*init)(void) = (int (*)(void))ms_real_dlsym(library, "nvmlInit_v2");
    *(void **)&nvml->handle_by_uuid = ms_real_dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml->memory_info = ms_real_dlsym(library, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml->driver_version = ms_real_dlsym(library, "nvmlSystemGetDriverVersion");
    *(void **)&nvml->compute = ms_real_dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&nvml->graphics = ms_real_dlsym(library, "nvmlDeviceGetGraphicsRunningProcesses_v3");
    *(void **)&nvml->limits = ms_real_dlsym(library, "nvmlDeviceGetMemoryLimits_v1");
    return init && nvml->handle_by_uuid && nvml->memory_info && nvml->driver_version &&
           init() == NVML_OK;
}

/* Null if there is no NVML. No lock is held while it is loaded, because the loader has a lock of
 * its own, under which a library's constructor may wait for us. Threads that come at the same time
 * all load it, and the first one to publish wins. */
static const struct nvml *nvml(void)
{
    struct nvml *known = atomic_load_explicit(&published, memory_order_acquire);
    if (!known) {
        struct nvml *made = calloc(1, sizeof *made);
        if (made && !load(made)) {
            free(made);
            made = NULL;
        }
        struct nvml *mine = made ? made : &missing;
        if (atomic_compare_exchange_strong(&published, &known, mine)) {
            known = mine;
        } else {
            free(made);
        }
    }
    return known == &missing ? NULL : known;
}

static bool find_device(const struct nvml *functions, const uint8_t *uuid, void **device)
{
    char text[48];
    snprintf(text, sizeof text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
             uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9],
             uuid[10], uuid[11], uuid[12], uuid[13], uuid[14], uuid[15]);
    return functions && functions->handle_by_uuid(text, device) == NVML_OK;
}

bool ms_nvml_used_bytes(const uint8_t *uuid, uint64_t *used_bytes)
{
    const struct nvml *functions = nvml();
    void *device = NULL;
    struct nvml_memory memory = {0};
    if (!find_device(functions, uuid, &device) ||
        functions->memory_info(device, &memory) != NVML_OK) {
        return false;
    }
    *used_bytes = memory.used;
    return true;
}

/* Adds those processes of one list that are missing: a process may compute and draw. found has room
 * for PROCESSES_MAX. */
static bool add_processes(list_t list, void *device, struct nvml_process *found,
                          struct ms_nvml_process *out, size_t room, size_t *count)
{
    unsigned found_count = PROCESSES_MAX;
    if (!list || list(device, &found_count, found) != NVML_OK || found_count > PROCESSES_MAX) {
        return false;
    }
    for (unsigned i = 0; i < found_count; i++) {
        size_t same = 0;
        while (same < *count && out[same].pid != found[i].pid) {
            same++;
        }
        if (same == room || found[i].bytes == UINT64_MAX) {
            return false;
        }
        if (same == *count) {
            out[(*count)++] =
                (struct ms_nvml_process){.pid = found[i].pid, .bytes = found[i].bytes};
        }
    }
    return true;
}

/* The list for NVML to fill is too large for a small thread's stack. */
bool ms_nvml_processes(const uint8_t *uuid, struct ms_nvml_process *out, size_t room, size_t *count)
{
    const struct nvml *functions = atomic_load_explicit(&published, memory_order_acquire);
    const size_t found_bytes = PROCESSES_MAX * sizeof(struct nvml_process);
    void *device = NULL;
    *count = 0;
    if (functions == &missing || !find_device(functions, uuid, &device)) {
        return false;
    }
    struct nvml_process *found = ms_pages_map(found_bytes);
    if (!found) {
        return false;
    }
    bool known = add_processes(functions->compute, device, found, out, room, count) &&
                 add_processes(functions->graphics, device, found, out, room, count);
    ms_pages_unmap(found, found_bytes);
    return known;
}

bool ms_nvml_own_bytes(const uint8_t *uuid, uint64_t *own_bytes)
{
    const size_t listed_bytes = PROCESSES_MAX * sizeof(struct ms_nvml_process);
    struct ms_nvml_process *listed = ms_pages_map(listed_bytes);
    size_t count = 0;
    *own_bytes = 0;
    bool known = listed && ms_nvml_processes(uuid, listed, PROCESSES_MAX, &count);
    for (size_t i = 0; i < count; i++) {
        if (listed[i].pid == (uint32_t)getpid()) {
            *own_bytes = listed[i].bytes;
        }
    }
    if (listed) {
        ms_pages_unmap(listed, listed_bytes);
    }
    return known;
}

bool ms_nvml_group_limit(const uint8_t *uuid, const char *group, uint64_t *limit_bytes,
                         uint64_t *used_bytes)
{
    const struct nvml *functions = atomic_load_explicit(&published, memory_order_acquire);
    struct nvml_limits limits = {.group = group};
    void *device = NULL;
    if (functions == &missing || !find_device(functions, uuid, &device) || !functions->limits ||
        functions->limits(device, &limits) != NVML_OK) {
        return false;
    }
    *limit_bytes = limits.hard;
    *used_bytes = limits.used;
    return true;
}

bool ms_nvml_driver_version(char *version, unsigned version_bytes)
{
    const struct nvml *functions = nvml();
    return functions && functions->driver_version(version, version_bytes) == NVML_OK;
}
