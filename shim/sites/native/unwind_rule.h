/* SPDX-License-Identifier: Apache-2.0 */
/* How to step out of the frame of a return address, on x86-64.
 *
 * Compilers describe nearly every frame in one form: the canonical frame address (CFA: the stack
 * pointer before the call) is a fixed distance from rsp or rbp; the return address lies right below
 * it; the caller's rbp is still in its register, or saved at a fixed place. That fits one word, and
 * is cached by return address. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_UNWIND_RULE_H
#define MEMSHIM_SHIM_SITES_NATIVE_UNWIND_RULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native/modules.h"

enum ms_rule_kind {
    MS_RULE_NONE,      /* no unwind table covers the address */
    MS_RULE_PLAIN,     /* CFA = base + cfa_words */
    MS_RULE_INDIRECT,  /* CFA = *(base + cfa_words) + add_words: a realigned stack */
    MS_RULE_OUTERMOST, /* nothing called this frame */
    MS_RULE_SIGNAL,    /* the kernel made this frame: the stack pointer is at a ucontext_t */
    MS_RULE_UNUSUAL    /* only libunwind can step */
};

/* Distances in words of 8 bytes. rbp is saved at CFA + bp_words, or, if the stack was realigned, at
 * rbp + bp_words. */
union ms_rule {
    struct {
        uint64_t kind : 3;       /* enum ms_rule_kind */
        uint64_t from_bp : 1;    /* base: rbp; otherwise rsp */
        uint64_t saves_bp : 1;   /* otherwise it is still in its register */
        uint64_t bp_from_bp : 1; /* the place of rbp counts from rbp */
        uint64_t uses_bp : 1;    /* uses either of the two that are based on rbp */
        int64_t add_words : 9;
        int64_t bp_words : 24;
        int64_t cfa_words : 24;
    };
    uint64_t word;
};

/* Reads the rule from a file's .eh_frame_hdr and .eh_frame. address: inside the instruction. */
union ms_rule ms_rule_read(const uint8_t *tables, uint64_t address);

/* --- Remembered, by return address, for all threads ------------------------------------------ */

#define MS_RULE_WAYS     4u
#define MS_RULE_SET_BITS 12u

/* Written and read without a lock. A key is the address and the generation, xor the rule. So a key
 * and a rule from two different writes do not match. */
struct ms_rule_set {
    _Alignas(64) struct {
        _Atomic uint64_t key, word;
    } ways[MS_RULE_WAYS];
};
extern struct ms_rule_set ms_rule_sets[1u << MS_RULE_SET_BITS];

#define MS_STAMP_UNSTEADY (UINT64_C(1) << 63) /* nothing is cached under it */

/* The value that is mixed into keys: addresses have 47 bits. */
static inline uint64_t ms_rule_stamp(uint64_t epoch)
{
    return ms_modules_steady(epoch) ? ((epoch >> 16) & 0x7fff) << 48 : MS_STAMP_UNSTEADY;
}

static inline uint64_t ms_rule_hash(uint64_t address)
{
    return (address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - MS_RULE_SET_BITS);
}

/* Finds the rule of a return address that is not cached, and caches it. Takes the loader's short
 * lock if the C library is older than 2.35. */
union ms_rule ms_rule_learn(uint64_t return_address, uint64_t stamp);

static inline union ms_rule ms_rule_of(uint64_t return_address, uint64_t stamp)
{
    struct ms_rule_set *set = &ms_rule_sets[ms_rule_hash(return_address)];
    for (uint32_t i = 0; i < MS_RULE_WAYS; i++) {
        uint64_t word = atomic_load_explicit(&set->ways[i].word, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&set->ways[i].key, memory_order_relaxed);
        if ((key ^ word) == (return_address ^ stamp)) {
            return (union ms_rule){.word = word};
        }
    }
    return ms_rule_learn(return_address, stamp);
}

#endif
