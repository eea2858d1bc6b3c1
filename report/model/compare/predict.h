/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts from two runs how the memory of a call site follows the batch, or the length of a
 * sequence; and what would fit. Two runs can distinguish a pure constant, line or square. If a line
 * and a square with a constant both pass through them, it keeps both, and the answer is a range.
 * Pure. */
#ifndef MEMSHIM_REPORT_MODEL_COMPARE_PREDICT_H
#define MEMSHIM_REPORT_MODEL_COMPARE_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ms_shape {
    MS_SHAPE_CONSTANT,
    MS_SHAPE_LINEAR,      /* in proportion */
    MS_SHAPE_QUADRATIC,   /* in proportion to the square */
    MS_SHAPE_PART_LINEAR, /* a constant part, and a line or a square */
    MS_SHAPE_PART_SQUARE, /* a square, and a line or a constant part */
    MS_SHAPE_STEEPER,     /* steeper than a square: at least a square, at most a cube */
    MS_SHAPE_FALLING,     /* the smaller x needs more: taken as constant, between the two */
    MS_SHAPE_ONE_RUN,     /* in one run only: taken as it is there */
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

#define MS_PREDICTED 4u /* number of values that it evaluates */

#define MS_MOST_COURSES 17u

/* The bytes of all sites together at one moment of the larger run, by x: see ms_fit. */
struct ms_course {
    double low[4], high[4];
};

struct ms_prediction {
    char name[64];                             /* name of the changed quantity: "batch" */
    double x[2];                               /* of A and B */
    bool whole;                                /* both are whole numbers */
    struct ms_course courses[MS_MOST_COURSES]; /* the peak is the highest of them */
    size_t course_count;
    uint64_t smaller_bytes; /* measured peak of live bytes of the smaller run */
    bool fails;             /* the courses give another value for that run */
    uint64_t beside_bytes;  /* charged beside the live bytes, as in the larger run */
    uint64_t cap_bytes;     /* 0: unknown */
    double at[MS_PREDICTED];
    bool fits_all;             /* every evaluated value fits */
    double fits, fits_at_most; /* largest x that surely fits, and that may fit; 0: none */
};

/* Parses "NAME=A,B". False: it is something else, or A and B are not two different numbers above
 * 0. */
bool ms_prediction_parse(const char *text, struct ms_prediction *prediction);

/* Adds a site, with its bytes at that moment, to a course. x: of the larger run, at which the
 * course is the measured value. */
void ms_course_add(struct ms_course *course, const struct ms_fit *fit, double x, uint64_t bytes);

/* The least and the greatest peak of live bytes that the courses allow. */
double ms_prediction_low(const struct ms_prediction *prediction, double x);
double ms_prediction_high(const struct ms_prediction *prediction, double x);

/* To be called at the end, with smaller_bytes, beside_bytes and cap_bytes set. */
void ms_prediction_finish(struct ms_prediction *prediction);

#endif
