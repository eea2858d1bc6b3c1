/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up training loops that run out of memory, and what was made of each: what the tests of
 * leaks, of segments and of what is held at that moment begin with. */
#ifndef MEMSHIM_TESTS_UNIT_REPORT_DYING_H
#define MEMSHIM_TESTS_UNIT_REPORT_DYING_H

#include "loop.h"
#include "report/model/survey/state.h"
#include "report/model/verdict/verdict_report.h"
#include "synthetic.h"

#define ACTIVATION (64 * MIB)
#define GRADIENT   (4 * MIB)
#define KEPT       (100 * MIB)

/* On a worker of autograd, with a native stack alone. */
#define NATIVE_GRADIENT 60u

/* A test may set the first five before it dies; model and what follows are there afterwards. */
extern uint64_t requested_bytes; /* of the call that fails; at first ACTIVATION */
extern uint8_t pinned_by;        /* enum ms_pinned_by: of those; at first none */
extern uint64_t hole_bytes;      /* free in chunks when memory ran out, of no use; at first 0 */
extern uint8_t grad_mode;        /* enum ms_grad_mode, of the call that fails; at first unknown */
extern uint64_t above_cap_bytes; /* of the device; at first 0 */
extern ms_trace_t *trace;        /* that is written, until ends() */
extern struct ms_model *model;
extern const struct ms_growth *growth;
extern struct ms_judgement judgement;

/* A trace begins: of tensors; of blocks that are PyTorch's segments; of blocks that are tensors. */
void begin(void);
void begin_unseen(void);
void begin_tensor_mode(void);
/* A trace of tensors begins, of a program that said how many samples a batch has. */
void begin_batch(void);
void end(void);

uint64_t born(enum loop_site site, uint64_t bytes);
void died(uint64_t id, uint64_t bytes);

/* A step that keeps nothing but the optimizer's state, which the first one makes. */
void step(int number);

/* The run is over: what was made of it. */
void ends(int exit_status);

/* A request of a forward pass that was refused, after which the program went on. */
void refused_before(uint64_t bytes);

/* The site asks for more than there is. */
void dies_at(uint32_t site, uint64_t short_bytes);

/* A forward in the next step asks for more than there is. */
void dies(uint64_t short_bytes);

/* Steps, after each `every`th of which the results of an evaluation are kept, with all that was
 * computed for them; then it dies. */
void train_and_keep(int steps, int every);

/* The function that the first leak's line is in. */
void expect_culprit(const char *function);

const struct ms_survey_moment *moment_of_death(void);

/* The lines of the answer, as report.txt has them, have this among them, or have it not. */
void expect_said(const char *words);
void expect_not_said(const char *words);

#endif
