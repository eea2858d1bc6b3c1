/* SPDX-License-Identifier: Apache-2.0 */
/* A serving half that only hands through, for tests of the door alone. Weak: the door has its own
 * answer to cuGetProcAddress. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/device/statistics.h"
#include "shim/frameworks/cupy.h"
#include "shim/frameworks/nvtx.h"
#include "shim/hooks/detour.h"
#include "shim/hooks/serve.h"
#include "shim/policy/heat.h"
#include "shim/policy/oom.h"
#include "shim/policy/policy.h"
#include "shim/policy/proxies.h"
#include "shim/policy/status.h"
#include "shim/policy/sync_memops.h"
#include "shim/process/session.h"
#include "shim/sharing/exports.h"
#include "shim/sharing/lent.h"
#include "shim/sites/intern.h"
#include "shim/sites/site.h"
#include "shim/sites/tags.h"

static _Atomic int served;

#define EXPORT __attribute__((visibility("default")))
EXPORT int fake_served(void);
EXPORT const void *fake_last_caller(void);
static const void *last_caller;

EXPORT int fake_served(void)
{
    return atomic_load(&served);
}

EXPORT const void *fake_last_caller(void)
{
    return last_caller;
}

/* Uses a device the way the first allocation does. */
static void serve(const char *symbol)
{
    static const uint8_t uuid[16] = {1};
    atomic_fetch_add(&served, 1);
    last_caller = ms_caller();
    if (strstr(symbol, "Alloc") != NULL && getenv("FAKE_DEVICE") != NULL) {
        ms_session_device(0, "Fake", uuid, UINT64_C(24) << 30, UINT64_C(12) << 30);
    }
}

/* NOLINTBEGIN(bugprone-macro-parentheses): a declaration has none */
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    __attribute__((weak)) CUresult ms_serve_##symbol params                     \
    {                                                                           \
        serve(#symbol);                                                         \
        return MS_REAL(symbol) args;                                            \
    }
#include "shim/tables/hooks.def"
/* NOLINTEND(bugprone-macro-parentheses) */

bool ms_detour_again(struct ms_detour *detour, const uint64_t *values, size_t count,
                     CUstream *stream)
{
    (void)detour;
    (void)values;
    (void)count;
    (void)stream;
    return false;
}

CUresult ms_detour_end(struct ms_detour *detour, CUresult result)
{
    (void)detour;
    return result;
}

void ms_capture_begins(CUstream handle)
{
    (void)handle;
}

void ms_captures_unseen(void)
{
}

_Atomic bool ms_heat_on;
void ms_heat_touch_each(const uint64_t *values, size_t count)
{
    (void)values;
    (void)count;
}

_Atomic bool ms_sync_memops_on;
CUresult ms_sync_memops_complete(CUresult result, bool per_thread, const uint64_t *values,
                                 size_t count)
{
    (void)per_thread;
    (void)values;
    (void)count;
    return result;
}

void ms_policy_install(void)
{
}

void ms_exports_end(void)
{
}

int ms_lent_take(pid_t process, int fd)
{
    (void)process;
    (void)fd;
    return -1;
}

_Atomic bool ms_status_on;
void ms_status_check_due(void)
{
}

void ms_status_step_due(void)
{
}

void ms_statistics_read(struct ms_device *device, struct memshim_stats *out)
{
    (void)device;
    (void)out;
}

int ms_tag_push(uint16_t owner, const char *name, size_t bytes, uint32_t color)
{
    (void)owner;
    (void)name;
    (void)bytes;
    (void)color;
    return 0;
}

int ms_tag_pop(uint16_t owner)
{
    (void)owner;
    return 0;
}

uint32_t ms_site_capture(uint64_t bytes)
{
    (void)bytes;
    return 0;
}

void ms_step(enum ms_step_source source)
{
    (void)source;
}

uint32_t ms_intern_passed(void)
{
    return 0;
}

char *ms_nvtx_path(const void *caller)
{
    (void)caller;
    return NULL;
}

bool ms_site_lend(void)
{
    return false;
}

void ms_site_lend_end(void)
{
}

void ms_cupy_module(const char *name, const void *found)
{
    (void)name;
    (void)found;
}

void ms_serve_born(int device, const void *addr, uint64_t bytes, uint64_t total_bytes)
{
    (void)device;
    (void)addr;
    (void)bytes;
    (void)total_bytes;
    serve("range");
}

void ms_serve_died(int device, const void *addr, uint64_t bytes, uint64_t total_bytes)
{
    (void)device;
    (void)addr;
    (void)bytes;
    (void)total_bytes;
    serve("range");
}

EXPORT uint64_t fake_pinned(void);
static _Atomic uint64_t pinned;

EXPORT uint64_t fake_pinned(void)
{
    return atomic_exchange(&pinned, 0);
}

void ms_proxies_replace_malloc(void)
{
}

bool ms_serve_pin(uint64_t addr, uint64_t bytes)
{
    atomic_store(&pinned, addr + bytes);
    return true;
}

void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes)
{
    (void)cached_bytes;
    (void)device;
    (void)requested_bytes;
    serve("oom");
}

void ms_oom_tensor_served(void)
{
}

struct ms_device *_Atomic ms_devices[MS_DEVICES_MAX];
