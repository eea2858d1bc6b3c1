/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop, made up event by event: sites with the stacks that real ones have, told to the
 * finder of steps and to the sums by site as the model tells them. */
#ifndef MEMSHIM_TESTS_UNIT_REPORT_LOOP_H
#define MEMSHIM_TESTS_UNIT_REPORT_LOOP_H

#include "report/fold/steps.h"
#include "report/model/kinds.h"

enum loop_site {
    LOOP_PARAMETER = 1, /* <module> > Module.to > Module._apply */
    LOOP_INPUT,         /* train */
    LOOP_FORWARD,       /* train > Module._call_impl > Net.forward */
    LOOP_GRADIENT,      /* autograd's thread */
    LOOP_BACKWARD,      /* autograd's thread, another operation */
    LOOP_STATE,         /* train > Adam.step > Adam._init_group */
    LOOP_UPDATE,        /* train > Adam.step */
    LOOP_OTHER_UPDATE,  /* train, another line > Adam.step */
    LOOP_OWN_UPDATE,    /* train > Mine.step, which is no part of PyTorch */
    LOOP_EVALUATION,    /* train > evaluate > Module._call_impl > Net.forward */
    LOOP_TEACHER,       /* train, another line > Module._call_impl > Net.forward */
    LOOP_IN_STEP,       /* <module> > Trainer.step > Module._call_impl > Net.forward */
    LOOP_STEP_ITSELF,   /* <module> > Trainer.step */
    LOOP_COPY,          /* <module> > copy.deepcopy */
    LOOP_RECOMPUTED,    /* autograd's thread > Module._call_impl > Net.forward */
    LOOP_PREFETCH,      /* Thread._bootstrap > Loader.run */
    LOOP_KEPT,          /* train, another line */
    LOOP_GATHERED,      /* train > Module._call_impl > FSDP's unshard */
    LOOP_LOADED,        /* <module> > torch.load */
    LOOP_UNKNOWN,       /* no stack */
    LOOP_CALL_GRADIENT, /* accumulate > torch.autograd.grad */
    LOOP_APPENDED,      /* train > evaluate > keep */
    LOOP_PACKAGE,       /* main > a package's trainer > Module._call_impl > its model > nn.Linear */
    LOOP_PACKAGE_UPDATE, /* main > a package's trainer > Adam.step */
    LOOP_IN_MAIN,        /* <module> > main */
    LOOP_IN_MAIN_INPUT,  /* <module> > main, another line */
    LOOP_IN_MAIN_MODEL,  /* <module> > main, a third line > add > Module._call_impl > Net.forward */
    LOOP_CALL_BACKWARD,  /* train > Tensor.backward */
    LOOP_REMEMBERED,     /* train > Module._call_impl > Net.forward > Bank.add */
    LOOP_COMPILED,       /* train > a compiled model > Module._call_impl > Net.forward */
    LOOP_COMPILED_BACKWARD, /* autograd's thread > a graph of torch.compile > torch/_ops.py */
    LOOP_AVERAGE,           /* <module> > Average.__init__ */
    LOOP_STATE_TOO,         /* train > Adam.step > Adam._init_group, another line */
    LOOP_REMEMBERED_TOO     /* train > Module._call_impl > Net.forward > Bank.add_values */
};

struct loop {
    ms_definitions_t *definitions;
    ms_landmarks_t *landmarks;
    ms_steps_t *steps;
    ms_site_table_t *table;
    uint64_t time_ns, next_id;
    uint64_t addr;         /* of what is born */
    struct ms_run_end end; /* as it ended; at first: well */
};

/* The definitions of all sites, one by one. */
void loop_define(void (*define)(void *ctx, uint32_t kind, const void *payload, size_t bytes),
                 void *ctx);

void loop_start(struct loop *loop);
void loop_start_without_training(struct loop *loop); /* no site is of a model or a backward pass */
void loop_stop(struct loop *loop);

uint64_t loop_born(struct loop *loop, enum loop_site site, uint64_t bytes); /* its id */
void loop_died(struct loop *loop, uint64_t id, uint64_t bytes);
void loop_moment(struct loop *loop, enum loop_site site, uint64_t bytes); /* born, died */

/* Nothing follows: what was found. */
struct ms_recurrence loop_end(struct loop *loop);
struct ms_recurrence loop_end_after(struct loop *loop, const struct ms_steps_failures *failures);
struct ms_site_kinds loop_kinds(const struct loop *loop, enum loop_site site);

#endif
