/* Measuring, and the charges of contexts. */
#include "shim/serve/overhead.h"

#include "shim/serve/context.h"
#include "shim/serve/driver.h"
#include "shim/serve/nvml.h"
#include "shim/serve/stream.h"
#include "shim/session.h"

/* Contexts of current devices and drivers take 250 to 600 MiB. Used only where neither the driver
 * nor NVML could be asked before the context was there. */
#define GUESS_BYTES (512ULL << 20)

static bool used_by_driver(struct ms_device *device, uint64_t *used_bytes)
{
    if (!ms_context_any(device) || ms_captures_running()) {
        return false;
    }
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    struct ms_scope scope;
    ms_scope_enter(device, &scope);
    CUresult result = MS_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
    ms_scope_leave(&scope);
    if (result != CUDA_SUCCESS || free_bytes > total_bytes) {
        return false;
    }
    *used_bytes = total_bytes - free_bytes;
    return true;
}

bool ms_device_used_bytes(struct ms_device *device, uint64_t *used_bytes)
{
    return used_by_driver(device, used_bytes) || ms_nvml_used_bytes(device->uuid, used_bytes);
}

void ms_measure_begin(struct ms_device *device, struct ms_measure *measure)
{
    *measure = (struct ms_measure){0};
    if (!device || ms_captures_running()) {
        return;
    }
    measure->charged_bytes = atomic_load(&device->budget.charged_bytes);
    if (used_by_driver(device, &measure->used_bytes)) {
        measure->device = device;
    } else if (ms_nvml_used_bytes(device->uuid, &measure->used_bytes)) {
        measure->device = device;
        measure->by_nvml = true;
    }
}

int64_t ms_measure_end(const struct ms_measure *measure)
{
    struct ms_device *device = measure->device;
    uint64_t used_bytes = 0;
    if (!device || ms_captures_running() ||
        !(measure->by_nvml ? ms_nvml_used_bytes(device->uuid, &used_bytes)
                           : used_by_driver(device, &used_bytes))) {
        return 0;
    }
    int64_t ours = (int64_t)(atomic_load(&device->budget.charged_bytes) - measure->charged_bytes);
    return (int64_t)(used_bytes - measure->used_bytes) - ours;
}

void ms_overhead_charge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    struct ms_device *device = context->device;
    if (bytes == 0) {
        return;
    }
    atomic_fetch_add(&context->charged_bytes, bytes);
    ms_budget_impose(&device->budget, MS_OWNER_CONTEXT, bytes);
    ms_device_note_charge(device, true, MS_OWNER_CONTEXT, reason, 0, bytes, 0);
    ms_device_check_thresholds(device);
}

void ms_overhead_discharge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    /* Never more than is charged: two who measure at once may both see what one gave back. */
    uint64_t held = atomic_load(&context->charged_bytes);
    uint64_t back = 0;
    do {
        back = bytes < held ? bytes : held;
    } while (!atomic_compare_exchange_weak(&context->charged_bytes, &held, held - back));
    if (back != 0) {
        ms_device_note_charge(context->device, false, MS_OWNER_CONTEXT, reason, 0, back, 0);
        ms_device_discharge(context->device, MS_OWNER_CONTEXT, back);
    }
}

uint64_t ms_overhead_guess(struct ms_device *device)
{
    uint64_t known = atomic_load(&device->first_overhead_bytes);
    if (known != 0) {
        return known;
    }
    uint64_t used_bytes = 0;
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    if (!ms_device_used_bytes(device, &used_bytes) || used_bytes <= charged) {
        return 0;
    }
    return used_bytes - charged < GUESS_BYTES ? used_bytes - charged : GUESS_BYTES;
}
