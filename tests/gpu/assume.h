/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated GPU takes the real driver to do, each thing as a function that tries it; and
 * questions, which take nothing for granted and leave answers.
 *
 * They run one after the other in one process, without memshim; after one that does not hold the
 * process is left for a new one, so they need not tidy up then. Bytes in use are compared around
 * calls, so nothing else may use the device meanwhile. */
#ifndef MEMSHIM_TESTS_GPU_ASSUME_H
#define MEMSHIM_TESTS_GPU_ASSUME_H

#include <stdbool.h>

#include "tests/gpu/gpu.h"

enum verdict { HOLDS, DIFFERS, UNTRIED };

struct assumption {
    const char *says; /* one line; what the results call it */
    enum verdict (*try)(const struct gpu *gpu);
    bool alone; /* in a process of its own: it may cost the context */
};

/* Each ends with a row whose says is null. */
extern const struct assumption assume_mapping[], assume_memory[], assume_order[], assume_host[],
    assume_boundary[], assume_kernels[], assume_graphs[], assume_reset[], assume_waits[];

/* What was seen, for a verdict other than HOLDS; returns that verdict. */
enum verdict assume_saw(enum verdict verdict, const char *what, long long value);

/* An answer to a question, printed at once: in words, yes or no, what a call gives, or a number of
 * something. */
void assume_answer(const char *question, const char *answer);
void assume_whether(const char *question, bool yes);
void assume_gives(const char *question, CUresult result);
void assume_measured(const char *question, long long value, const char *unit);
/* The name of a result. */
const char *assume_result_name(CUresult result);

/* What `assumptions spin` does: keeps the device busy for a while, and says when it begins. Returns
 * the exit status. */
int assume_spin(void);

#define SO(condition)                                             \
    do {                                                          \
        if (!(condition)) {                                       \
            return assume_saw(DIFFERS, "not so: " #condition, 0); \
        }                                                         \
    } while (0)

#define GIVES(call, expected)                                                              \
    do {                                                                                   \
        long long gives_result = (long long)(call);                                        \
        if (gives_result != (long long)(expected)) {                                       \
            return assume_saw(DIFFERS, #call " gives this, not " #expected, gives_result); \
        }                                                                                  \
    } while (0)

#define WORKS(call) GIVES(call, CUDA_SUCCESS)

#define REFUSED(call)                                               \
    do {                                                            \
        if ((call) == CUDA_SUCCESS) {                               \
            return assume_saw(DIFFERS, #call " is not refused", 0); \
        }                                                           \
    } while (0)

#define NEEDS(condition, what)                   \
    do {                                         \
        if (!(condition)) {                      \
            return assume_saw(UNTRIED, what, 0); \
        }                                        \
    } while (0)

#endif
