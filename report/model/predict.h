/* SPDX-License-Identifier: Apache-2.0 */
/* How what a call site holds follows the batch, or the length of a sequence, told from two runs;
 * and what would fit. Two runs tell a constant, a line and a square apart where they are pure.
 * Where both a line and a square would pass through them, both are kept: the answer is a range.
 * Pure. */
#ifndef MEMSHIM_REPORT_MODEL_PREDICT_H
#define MEMSHIM_REPORT_MODEL_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ms_shape {
    MS_SHAPE_CONSTANT,
    MS_SHAPE_LINEAR,      /* in proportion */
    MS_SHAPE_QUADRATIC,   /* in proportion to the square */
    MS_SHAPE_PART_LINEAR, /* a constant part, and a line or a square */
    MS_SHAPE_PART_SQUARE, /* a square, and a line or a constant part */
    MS_SHAPE_STEEPER,     /* than a square: at least one, at most a cube */
    MS_SHAPE_FALLING,     /* more for the smaller: taken as the smaller of the two stands */
    MS_SHAPE_ONE_RUN,     /* in one of them only: taken as it is there */
    MS_SHAPE_COUNT
};

/* "proportional", ... */
const char *ms_shape_name(enum ms_shape shape);

struct ms_fit {
    uint8_t shape; /* enum ms_shape */
    /* bytes = a[0] + a[1] x + a[2] x^2 + a[3] x^3 */
    double low[4], high[4];
};

/* x: 0 < x[0] < x[1]. */
struct ms_fit ms_fit_find(const double x[2], const uint64_t bytes[2]);
double ms_fit_bytes(const double parts[4], double x);

#define MS_PREDICTED 4u /* values that are looked at */

struct ms_prediction {
    char name[64];          /* of what was changed: "batch" */
    double x[2];            /* of A and B */
    bool whole;             /* both are whole numbers */
    double low[4], high[4]; /* of all sites together: the sum of their fits */
    uint64_t beside_bytes;  /* charged beside them, as in the larger run */
    uint64_t cap_bytes;     /* 0: not known */
    double at[MS_PREDICTED];
    bool fits_all;             /* nothing that was looked at does not fit */
    double fits, fits_at_most; /* largest x that surely fits, that may; 0: none */
};

/* "NAME=A,B". False where it is not, or A and B are not two different numbers above 0. */
bool ms_prediction_parse(const char *text, struct ms_prediction *prediction);

/* Adds a site's fit. */
void ms_prediction_add(struct ms_prediction *prediction, const struct ms_fit *fit);

/* After the last, with beside_bytes and cap_bytes set. */
void ms_prediction_finish(struct ms_prediction *prediction);

#endif
