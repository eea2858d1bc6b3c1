/* SPDX-License-Identifier: Apache-2.0 */
/* Ways into memshim that no program has. See gate_entry.h. */
#include "gate_entry.h"

#include <dlfcn.h>
#include <time.h>

#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/door/stubs.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/driver/hook.h"
#include "shim/policy/heat.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int gate_halt(int device, uint64_t timeout_ns)
{
    struct ms_device *d = ms_device_get(device);
    bool entered = ms_guard_enter(__builtin_return_address(0));
    ms_status_t status = d->ops.halt(d->ops.ctx, timeout_ns);
    if (entered) {
        ms_guard_leave();
    }
    return status;
}

EXPORT void gate_resume(int device)
{
    struct ms_device *d = ms_device_get(device);
    d->ops.resume(d->ops.ctx);
}

EXPORT int gate_copy(int device, uint64_t to, uint64_t from, uint64_t bytes)
{
    struct ms_device *d = ms_device_get(device);
    return d->ops.copy(d->ops.ctx, to, from, bytes);
}

EXPORT int gate_copy_wait(int device, uint64_t left)
{
    struct ms_device *d = ms_device_get(device);
    return d->ops.copy_wait(d->ops.ctx, left);
}

static uint64_t calls_of(const char *function)
{
    static uint64_t (*calls)(const char *);
    if (calls == NULL) {
        calls = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_calls");
    }
    return calls(function);
}

static uint64_t started(void)
{
    return calls_of("cuLaunchKernel") + calls_of("cuMemcpyAsync") + calls_of("cuMemcpyHtoDAsync") +
           calls_of("cuMemcpyDtoHAsync") + calls_of("cuMemsetD8Async") + calls_of("cuGraphLaunch");
}

EXPORT int gate_stand(int device, uint64_t timeout_ns, uint64_t stand_ns)
{
    if (ms_device_get(device) == NULL) {
        return MS_ERR_NOT_READY;
    }
    int status = gate_halt(device, timeout_ns);
    if (status == MS_OK) {
        uint64_t before = started();
        nanosleep(&(struct timespec){.tv_nsec = (long)stand_ns}, NULL);
        status = started() == before ? MS_OK : -1;
        gate_resume(device);
    }
    return status;
}

EXPORT uint64_t gate_host_bytes(int device, uint64_t addr)
{
    return ms_pool_touch(ms_device_get(device)->pool, addr, 0);
}

EXPORT void gate_look(const void *function, void **parameters)
{
    ms_heat_launch(function, parameters, NULL);
}

EXPORT void gate_inside(void (*function)(void *), void *argument)
{
    ms_gate_enter();
    function(argument);
    ms_gate_leave();
}

EXPORT const char *gate_why_not(void)
{
    return ms_gate_refusal();
}

EXPORT void gate_hide_context_events(void)
{
    ((struct ms_driver_functions *)(uintptr_t)ms_driver())->cuCtxRecordEvent = NULL;
}

static CUresult (*create_event)(CUevent *event, unsigned int flags);
static void (*before_event)(void);

static CUresult create_event_after(CUevent *event, unsigned int flags)
{
    before_event();
    return create_event(event, flags);
}

EXPORT void gate_before_events(void (*act)(void))
{
    struct ms_driver_functions *driver = (struct ms_driver_functions *)(uintptr_t)ms_driver();
    before_event = act;
    create_event = driver->cuEventCreate;
    driver->cuEventCreate = create_event_after;
}

EXPORT int gate_captures(void)
{
    return ms_captures_running();
}

EXPORT int gate_begin_capture(void *stream)
{
    return MS_REAL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int cancellation; /* of the one thread that holds captures off */

EXPORT int gate_hold_off_captures(void)
{
    return ms_capture_hold_off(&cancellation);
}

EXPORT void gate_let_captures_on(void)
{
    ms_capture_let_on(cancellation);
}

EXPORT uint64_t gate_access_mask(int device)
{
    return atomic_load(&ms_device_get(device)->access_mask);
}

EXPORT uint64_t gate_pending_bytes(int device)
{
    struct ms_pool_stats stats;
    ms_pool_stats(ms_device_get(device)->pool, &stats);
    return stats.pending_bytes;
}

EXPORT void *gate_stub(const char *name, void *function)
{
    return ms_gate_is_harmless(name) ? function : ms_stub_for(name, function);
}
