/* Host memory that the device can reach: whether there is such a road, and how much may be taken
 * along it. The last rung of backing a hole again (allocator/pool.h, host_limit_bytes). */
#ifndef MEMSHIM_SHIM_SERVE_HOST_ROAD_H
#define MEMSHIM_SHIM_SERVE_HOST_ROAD_H

#include "shim/serve/device.h"

/* Looks for the road, before the device has a context of this process: fills device->host_location
 * (CU_MEM_LOCATION_TYPE_INVALID: none) and device->no_host_road (why not), and returns how many
 * bytes of the host the pool may take, 0 where there is no road. The first time on a machine, and
 * after each change of the driver, a throw-away process tries it; up to 10 s pass then. handle and
 * uuid are set. */
uint64_t ms_host_road_open(struct ms_device *device);

#endif
