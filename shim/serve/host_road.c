#include "shim/serve/host_road.h"

#include <stdio.h>

#include "report/verdict.h"
#include "shim/log.h"
#include "shim/probe.h"
#include "shim/serve/driver.h"
#include "shim/serve/host_bytes.h"
#include "shim/serve/nvml.h"

static int proven(const struct ms_device *device)
{
    char driver[64];
    char uuid[2 * sizeof device->uuid + 1];
    char key[sizeof driver + sizeof uuid + 8];
    int version = 0;
    (void)ms_driver()->cuDriverGetVersion(&version);
    if (!ms_nvml_driver_version(driver, sizeof driver)) {
        (void)snprintf(driver, sizeof driver, "cuda-%d", version);
    }
    for (size_t i = 0; i < sizeof device->uuid; i++) {
        (void)snprintf(uuid + 2 * i, 3, "%02x", device->uuid[i]);
    }
    (void)snprintf(key, sizeof key, "host-%s-%s", driver, uuid);
    return ms_probe("probe-host", uuid, key);
}

static int attribute(const struct ms_device *device, CUdevice_attribute which)
{
    int value = 0;
    return ms_driver()->cuDeviceGetAttribute(&value, which, device->handle) == CUDA_SUCCESS ? value
                                                                                            : 0;
}

/* Where host chunks would lie: beside the device where the driver can say so (CUDA 12.2), else
 * anywhere. False: it has none. */
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

static const char *reason_against(struct ms_device *device)
{
    if (!find_location(device)) {
        return "its driver offers none";
    }
    switch (proven(device)) {
    case MS_PROBE_YES:
        return NULL;
    case MS_PROBE_NO:
        return "the driver offers it, but a test of it failed";
    default:
        return "it could not be tested (is the memshim command beside the library?)";
    }
}

uint64_t ms_host_road_open(struct ms_device *device)
{
    char text[24];
    uint64_t bytes = ms_host_share_bytes(ms_host_available_bytes(""));
    device->no_host_road = reason_against(device);
    if (device->no_host_road) {
        device->host_location.type = CU_MEM_LOCATION_TYPE_INVALID;
        ms_log(MS_LOG_INFO,
               "device %d cannot use host memory: %s; holes are taken only as far as free memory "
               "could fill them again",
               device->ordinal, device->no_host_road);
        return 0;
    }
    ms_log(MS_LOG_INFO, "device %d may use up to %s of host memory to fill holes again",
           device->ordinal, ms_bytes_text(bytes, text, sizeof text));
    return bytes;
}
