/* SPDX-License-Identifier: Apache-2.0 */
/* The stamped words of tensors, as the device sees them: everything here happens in the order of
 * the streams, not of the host. Addresses and sizes in bytes. Thread-safe; calls nothing of the
 * driver. What is wrong ends the process (stamp_fail). */
#ifndef MEMSHIM_TESTS_TORCH_STAMP_WORDS_H
#define MEMSHIM_TESTS_TORCH_STAMP_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum stamp_state {
    STAMP_QUEUED,  /* its stamp is still behind other work */
    STAMP_PRESENT, /* stamped, and what lies there is its own */
    STAMP_GONE,    /* forgotten: nothing is verified */
};

struct stamp_tensor {
    uint64_t addr, bytes;
    uint64_t number;        /* of its birth, from 1 */
    enum stamp_state state; /* under the lock of words.c */
    uint64_t *overwritten;  /* a bit for each word that the job wrote over; null: none. The same */
};

struct stamp_counts {
    _Atomic uint64_t births, not_stamped, verified, forgotten, words, overwritten;
};
extern struct stamp_counts stamp_counts;

/* One word at the beginning of every so many bytes of a tensor, and its last one. */
void stamp_words_step(uint64_t step_bytes);

/* The tensor's stamp is due: writes it, unless it is gone already; then it is freed. */
void stamp_words_write(struct stamp_tensor *tensor);

/* The last look at a tensor, which is freed: every word is its own, or was overwritten. */
void stamp_words_end(struct stamp_tensor *tensor);

/* The tensor is not looked at any more. Frees it now, or, where its stamp is queued, then. */
void stamp_words_forget(struct stamp_tensor *tensor);

/* The job is about to store there. */
void stamp_words_overwritten(uint64_t addr, uint64_t bytes);

/* Looks at every tensor that is stamped now; the count of them. */
uint64_t stamp_words_verify_all(void);

/* A byte in each granule (2 MiB) that the range touches can be read. when: for the
 * complaint. */
void stamp_words_probe(uint64_t addr, uint64_t bytes, uint64_t number, const char *when);

/* Says what is wrong on stderr and ends the process with STAMP_STATUS. */
#define STAMP_STATUS 86
_Noreturn __attribute__((format(printf, 1, 2))) void stamp_fail(const char *format, ...);

#endif
