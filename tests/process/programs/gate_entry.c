#include "gate_entry.h"

#include "shim/gate.h"
#include "shim/hook.h"
#include "shim/serve/device.h"

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

EXPORT int gate_copy_wait(int device)
{
    struct ms_device *d = ms_device_get(device);
    return d->ops.copy_wait(d->ops.ctx);
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

EXPORT void gate_asked(const char *name)
{
    ms_gate_note_unhooked(name);
}
