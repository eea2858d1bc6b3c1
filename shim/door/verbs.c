/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks libibverbs' registrations, and pins the memory first. */
#include "shim/door/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "shim/driver/resolve.h"
#include "shim/hooks/serve.h"

/* Signatures: verbs.h of rdma-core. Its structures are passed on unread. */
typedef void *(*reg_mr_t)(void *pd, void *addr, size_t length, int access);
typedef void *(*reg_mr_iova_t)(void *pd, void *addr, size_t length, uint64_t iova, int access);
typedef void *(*reg_mr_iova2_t)(void *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access);

enum which { REG_MR, REG_MR_IOVA, REG_MR_IOVA2, COUNT };

static _Atomic(void *) real[COUNT]; /* set before the hook is handed out */

/* False, with errno as the hooked function sets it: the memory cannot be brought to where a network
 * card would look for it. */
static bool pin(const void *addr, size_t length, const void *caller)
{
    bool driver_known = atomic_load(&ms_real_published) != &ms_real_none;
    bool pinned = true;
    if (driver_known && ms_guard_enter(caller)) {
        pinned = ms_serve_pin((uintptr_t)addr, length);
        ms_guard_leave();
    }
    errno = pinned ? errno : ENOMEM;
    return pinned;
}

static void *reg_mr(void *pd, void *addr, size_t length, int access)
{
    if (!pin(addr, length, __builtin_return_address(0))) {
        return NULL;
    }
    return ((reg_mr_t)atomic_load(&real[REG_MR]))(pd, addr, length, access);
}

static void *reg_mr_iova(void *pd, void *addr, size_t length, uint64_t iova, int access)
{
    if (!pin(addr, length, __builtin_return_address(0))) {
        return NULL;
    }
    return ((reg_mr_iova_t)atomic_load(&real[REG_MR_IOVA]))(pd, addr, length, iova, access);
}

static void *reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
    if (!pin(addr, length, __builtin_return_address(0))) {
        return NULL;
    }
    return ((reg_mr_iova2_t)atomic_load(&real[REG_MR_IOVA2]))(pd, addr, length, iova, access);
}

static const struct {
    const char *name;
    void *hook;
} table[COUNT] = {
    [REG_MR] = {"ibv_reg_mr", (void *)reg_mr},
    [REG_MR_IOVA] = {"ibv_reg_mr_iova", (void *)reg_mr_iova},
    [REG_MR_IOVA2] = {"ibv_reg_mr_iova2", (void *)reg_mr_iova2},
};

static int which(const char *name)
{
    int row = 0;
    while (row < COUNT && strcmp(table[row].name, name) != 0) {
        row++;
    }
    return row;
}

bool ms_verbs_known(const char *name)
{
    return which(name) < COUNT;
}

void *ms_verbs_hook(const char *name, void *found)
{
    int row = which(name);
    void *known = NULL;
    Dl_info info;
    if (found == NULL || row == COUNT) {
        return found;
    }
    if (atomic_compare_exchange_strong(&real[row], &known, found) && dladdr(found, &info) != 0) {
        /* The address stays in use, so a dlclose must not unload the library. */
        (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
    return known == NULL || known == found ? table[row].hook : found;
}
