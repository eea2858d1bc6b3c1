/* SPDX-License-Identifier: Apache-2.0 */
/* Packs a rule into one word, and caches rules by return address. */
#include "shim/sites/native/unwind_rule.h"

#include <string.h>

#define ADDRESS_BITS 47 /* of user space */

struct ms_rule_set ms_rule_sets[1u << MS_RULE_SET_BITS];

/* The kernel enters a handler with this as its return address: mov $__NR_rt_sigreturn, %rax;
 * syscall. Unwinders recognize it by its bytes, because glibc's tables describe it with one
 * expression for each register. */
static bool returns_from_signal(uint64_t address)
{
    static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
    return memcmp((const void *)(uintptr_t)address, code, sizeof(code)) == 0;
}

static union ms_rule read_rule(uint64_t return_address)
{
    /* A call may be the last instruction of its function, so the function is that of the byte
     * before. If a function begins at the return address and nothing lies before it, the address
     * was put there by hand (as by makecontext). */
    const uint8_t *tables = ms_modules_tables(return_address - 1);
    if (tables == NULL) {
        return (union ms_rule){.kind = MS_RULE_NONE};
    }
    union ms_rule rule = ms_rule_read(tables, return_address - 1);
    if (rule.kind == MS_RULE_NONE) {
        rule = ms_rule_read(tables, return_address);
    }
    if (rule.kind == MS_RULE_SIGNAL && !returns_from_signal(return_address)) {
        rule = (union ms_rule){.kind = MS_RULE_UNUSUAL};
    }
    return rule;
}

/* Nothing is kept that was read while a library may have been unloaded, or that belongs to no
 * library. */
static bool keeps(union ms_rule rule, uint64_t stamp)
{
    return rule.kind != MS_RULE_NONE && stamp != MS_STAMP_UNSTEADY &&
           ms_rule_stamp(ms_modules_now()) == stamp;
}

union ms_rule ms_rule_learn(uint64_t return_address, uint64_t stamp)
{
    if (return_address >> ADDRESS_BITS != 0 || return_address == 0) {
        return (union ms_rule){.kind = MS_RULE_NONE};
    }
    union ms_rule rule = read_rule(return_address);
    if (keeps(rule, stamp)) {
        struct ms_rule_set *set = &ms_rule_sets[ms_rule_hash(return_address)];
        uint32_t way = (uint32_t)(return_address >> 4) % MS_RULE_WAYS;
        for (uint32_t i = 0; i < MS_RULE_WAYS; i++) {
            uint64_t word = atomic_load_explicit(&set->ways[i].word, memory_order_relaxed);
            uint64_t key = atomic_load_explicit(&set->ways[i].key, memory_order_relaxed);
            if (word == 0 || ((key ^ word) ^ stamp) >> 48 != 0) {
                way = i; /* empty, or of another generation */
                break;
            }
        }
        atomic_store_explicit(&set->ways[way].word, rule.word, memory_order_relaxed);
        atomic_store_explicit(&set->ways[way].key, return_address ^ stamp ^ rule.word,
                              memory_order_relaxed);
    }
    return rule;
}
