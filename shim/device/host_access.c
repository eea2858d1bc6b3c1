/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether the device can reach host memory, by a probe if need be. */
#include "shim/device/host_access.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "allocator/base/units.h"
#include "shim/driver/driver.h"
#include "shim/driver/nvml.h"
#include "shim/process/log.h"
#include "shim/process/probe.h"
#include "shim/tables/host_bytes.h"
#include "shim/tables/remembered.h"

/* Identifies the libcuda.so.1 in use: a container may bring another than the machine's, for the
 * same version of the kernel driver (NVIDIA's forward compatibility packages). */
static uint64_t library_id(void)
{
    Dl_info info;
    struct stat about;
    if (dladdr(*(void *const *)&ms_driver()->cuDriverGetVersion, &info) == 0 || !info.dli_fname ||
        stat(info.dli_fname, &about) != 0) {
        return 0;
    }
    return (uint64_t)about.st_size ^ (uint64_t)about.st_mtim.tv_sec << 24 ^
           (uint64_t)about.st_mtim.tv_nsec;
}

/* The key names everything that the answer depends on: the device, both halves of the driver, the
 * kernel, and memshim's own test. */
static void make_key(const char *uuid, char *key, size_t key_bytes)
{
    char driver[64];
    struct utsname kernel = {.release = ""};
    int version = 0;
    (void)ms_driver()->cuDriverGetVersion(&version);
    if (!ms_nvml_driver_version(driver, sizeof driver)) {
        (void)snprintf(driver, sizeof driver, "cuda");
    }
    (void)uname(&kernel);
    (void)snprintf(key, key_bytes, "host-%s-%.32s-%d-%016" PRIx64 "-%.64s-%s", uuid, driver,
                   version, library_id(), kernel.release, MEMSHIM_VERSION);
    ms_remembered_key(key);
}

static struct ms_probe_result proven(const struct ms_device *device)
{
    char uuid[2 * sizeof device->uuid + 1];
    char key[MS_REMEMBERED_KEY_BYTES];
    for (size_t i = 0; i < sizeof device->uuid; i++) {
        (void)snprintf(uuid + 2 * i, 3, "%02x", device->uuid[i]);
    }
    make_key(uuid, key, sizeof key);
    return ms_probe("probe-host", uuid, key);
}

static int attribute(const struct ms_device *device, CUdevice_attribute which)
{
    int value = 0;
    return ms_driver()->cuDeviceGetAttribute(&value, which, device->handle) == CUDA_SUCCESS ? value
                                                                                            : 0;
}

/* Where host chunks would lie: beside the device if the driver can say so (CUDA 12.2), otherwise
 * anywhere. False: nowhere. */
static bool find_location(struct ms_device *device)
{
    device->host_location.type = CU_MEM_LOCATION_TYPE_INVALID;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        int node = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
        device->host_location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        device->host_location.id = node > 0 ? node : 0;
    } else if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        device->host_location.type = CU_MEM_LOCATION_TYPE_HOST;
    }
    return device->host_location.type != CU_MEM_LOCATION_TYPE_INVALID;
}

/* Warns if the driver offers such memory and memshim cannot use it: then the machine's owner can do
 * something about it. */
static void say_no_access(const struct ms_device *device, const struct ms_probe_result *result)
{
    const bool offered = result != NULL;
    const bool no = offered && result->answer == MS_PROBE_NO;
    ms_log(offered ? MS_LOG_WARN : MS_LOG_INFO,
           "device %d %s host memory: %s%s%s; nothing is spilled, and holes are used only "
           "as far as free memory could fill them again%s",
           device->ordinal, offered && !no ? "does without" : "cannot use",
           offered && !no ? "whether it works could not be found out, because " : "",
           device->no_host_access,
           no && result->remembered_ns != 0 ? ", as an earlier test found" : "",
           no        ? " (it is tried again after a day; memshim doctor tries it at once)"
           : offered ? " (the next process tries it again)"
                     : "");
}

uint64_t ms_host_access_open(struct ms_device *device)
{
    char text[24];
    uint64_t bytes = ms_host_share_bytes(ms_host_available_bytes(""));
    if (!find_location(device)) {
        device->no_host_access = "its driver offers none";
        say_no_access(device, NULL);
        return 0;
    }
    const struct ms_probe_result result = proven(device);
    if (result.answer != MS_PROBE_YES) {
        device->no_host_access = ms_probe_why(result.code);
        device->host_location.type = CU_MEM_LOCATION_TYPE_INVALID;
        say_no_access(device, &result);
        return 0;
    }
    device->no_host_access = NULL;
    ms_log(MS_LOG_INFO, "device %d may use up to %s of host memory to fill holes again",
           device->ordinal, ms_bytes_text(bytes, text, sizeof text));
    return bytes;
}
