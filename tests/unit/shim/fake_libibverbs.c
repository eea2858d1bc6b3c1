/* SPDX-License-Identifier: Apache-2.0 */
/* A libibverbs.so.1 as far as the door knows it: its functions answer with a number that tells
 * which one it was and that the arguments arrived. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

static void *answer(uintptr_t number, const void *pd, const void *addr, size_t length)
{
    int sound = pd == (void *)0x10 && addr == (void *)0x20000 && length == 0x30000;
    return (void *)(sound ? number : 0);
}

/* Two versions of one name, as the real library has. */
EXPORT void *ibv_reg_mr_old(void *pd, void *addr, size_t length, int access);
EXPORT void *ibv_reg_mr_old(void *pd, void *addr, size_t length, int access)
{
    return answer(100u + (unsigned)access, pd, addr, length);
}
__asm__(".symver ibv_reg_mr_old, ibv_reg_mr@IBVERBS_1.0");

EXPORT void *ibv_reg_mr_new(void *pd, void *addr, size_t length, int access);
EXPORT void *ibv_reg_mr_new(void *pd, void *addr, size_t length, int access)
{
    return answer(110u + (unsigned)access, pd, addr, length);
}
__asm__(".symver ibv_reg_mr_new, ibv_reg_mr@@IBVERBS_1.1");

EXPORT void *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova,
                              unsigned int access);
EXPORT void *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova,
                              unsigned int access)
{
    return answer(200u + (unsigned)iova + access, pd, addr, length);
}

EXPORT int ibv_dereg_mr(void *mr);
EXPORT int ibv_dereg_mr(void *mr)
{
    return mr == (void *)7 ? 70 : 0;
}
