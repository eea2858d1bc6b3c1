/* SPDX-License-Identifier: Apache-2.0 */
/* Samples the whole device: the driver says what is free, NVML which other processes use it. */
#include "shim/device/sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/containers/pages.h"
#include "shim/device/capture.h"
#include "shim/device/overhead.h"
#include "shim/driver/nvml.h"
#include "shim/process/session.h"

#define LISTED_MAX 64u

/* Leaves the name empty for a process of another namespace, or one that has ended. */
static void read_name(uint64_t pid, char name[MS_OTHER_NAME_BYTES])
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%" PRIu64 "/comm", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(name, MS_OTHER_NAME_BYTES, file)) {
            name[strcspn(name, "\n")] = '\0';
        }
        (void)fclose(file);
    }
}

/* Counts the process, and keeps the largest by name. */
static void note_other(struct ms_others *others, const struct ms_nvml_process *process)
{
    struct ms_other_process one = {.bytes = process->bytes, .pid = process->pid};
    others->bytes += process->bytes;
    others->count++;
    for (size_t i = 0; i < MS_OTHERS_NAMED; i++) {
        if (one.bytes > others->named[i].bytes) {
            struct ms_other_process smaller = others->named[i];
            others->named[i] = one;
            one = smaller;
        }
    }
}

/* False: it is not known who uses the device. */
static bool sort_processes(const struct ms_nvml_process *listed, size_t count,
                           struct ms_others *others)
{
    for (size_t i = 0; i < count; i++) {
        if (listed[i].pid == (uint32_t)getpid()) {
            others->known = 1;
        } else {
            note_other(others, &listed[i]);
        }
    }
    /* In a container the process ids may be the host's; then it is not known which one is this
     * process. */
    return others->known;
}

static void list_others(const struct ms_device *device, struct ms_others *others)
{
    const size_t listed_bytes = LISTED_MAX * sizeof(struct ms_nvml_process);
    struct ms_nvml_process *listed = ms_pages_map(listed_bytes); /* stacks may be small */
    size_t count = 0;
    *others = (struct ms_others){0};
    if (!listed) {
        return;
    }
    if (ms_nvml_processes(device->uuid, listed, LISTED_MAX, &count) &&
        !sort_processes(listed, count, others)) {
        *others = (struct ms_others){0};
    }
    ms_pages_unmap(listed, listed_bytes);
}

void ms_device_others(const struct ms_device *device, struct ms_others *others)
{
    list_others(device, others);
    for (size_t i = 0; i < MS_OTHERS_NAMED && others->named[i].pid != 0; i++) {
        read_name(others->named[i].pid, others->named[i].name);
    }
}

static bool measure_room(struct ms_device *device, uint64_t *free_bytes)
{
    uint64_t used_bytes = 0;
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    bool known = !ms_captures_running() && ms_device_used_bytes(device, &used_bytes) &&
                 used_bytes <= device->total_bytes;
    if (known) {
        *free_bytes = device->total_bytes - used_bytes;
        atomic_store(&device->room_bytes, charged + *free_bytes);
    }
    return known;
}

bool ms_device_measure_room(struct ms_device *device)
{
    uint64_t free_bytes = 0;
    return measure_room(device, &free_bytes);
}

void ms_device_sample(struct ms_device *device)
{
    struct ms_others others;
    uint64_t free_bytes = 0;
    if (!measure_room(device, &free_bytes) || !ms_session_trace()) {
        return;
    }
    list_others(device, &others);
    struct ms_event event = {
        .kind = MS_EVENT_SAMPLE,
        .device = device->ordinal,
        .bytes = free_bytes,
        .aux = others.known ? others.bytes : UINT64_MAX,
    };
    ms_session_emit(&event);
}
