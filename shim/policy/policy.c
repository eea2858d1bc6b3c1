/* SPDX-License-Identifier: Apache-2.0 */
/* The table of this room's decisions about devices (shim/device/device.h). */
#include "shim/policy/policy.h"

#include "shim/device/device.h"
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
        .device_used = ms_status_begin,
        .configure = configure,
        .short_of_memory = ms_heat_begin,
        .spill_ahead = ms_spill_ahead,
    };
    ms_device_set_policy(&policy);
}
