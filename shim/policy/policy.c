/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what is done for devices and decided about them (shim/device/device.h). */
#include "shim/policy/policy.h"

#include "shim/device/device.h"
#include "shim/device/group/device_group.h"
#include "shim/device/group/group_thread.h"
#include "shim/device/operations/driver_ops.h"
#include "shim/policy/heat.h"
#include "shim/policy/parameters.h"
#include "shim/policy/spill.h"
#include "shim/policy/status.h"

/* A device operation, which the pool calls before it chooses what to spill. */
static bool report_uses(void *ctx)
{
    (void)ctx;
    ms_heat_settle();
    return ms_parameters_known();
}

static void configure(struct ms_device *device, struct ms_pool_config *config)
{
    device->ops.report_uses = report_uses;
    ms_spill_configure(device, config);
}

void ms_policy_install(void)
{
    static const struct ms_device_policy policy = {
        .operations = ms_driver_ops_init,
        .group_join = ms_device_group_join,
        .group_leave = ms_device_group_leave,
        .group_attend = ms_group_thread_start,
        .group_climb = ms_device_group_climb,
        .device_used = ms_status_begin,
        .configure = configure,
        .short_of_memory = ms_heat_begin,
        .spill_ahead = ms_spill_ahead,
    };
    ms_device_set_policy(&policy);
}
