/* SPDX-License-Identifier: Apache-2.0 */
/* How what a call site holds follows the batch, or the length of a sequence, told from two runs;
 * and what would fit. Two runs tell a constant, a line and a square apart where they are pure.
 * Where both a line and a square would pass through them, both are kept: the answer is a range.
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

#define MS_MOST_COURSES 17u

/* What all sites together hold at one moment of the larger run, by x: see ms_fit. */
struct ms_course {
    double low[4], high[4];
};

struct ms_prediction {
    char name[64];                             /* of what was changed: "batch" */
    double x[2];                               /* of A and B */
    bool whole;                                /* both are whole numbers */
    struct ms_course courses[MS_MOST_COURSES]; /* the peak is the highest of them */
    size_t course_count;
    uint64_t smaller_bytes; /* peak of live bytes of the smaller run, as it was measured */
    bool fails;             /* it is not what the courses say of that run */
    uint64_t beside_bytes;  /* charged beside them, as in the larger run */
    uint64_t cap_bytes;     /* 0: not known */
    double at[MS_PREDICTED];
    bool fits_all;             /* nothing that was looked at does not fit */
    double fits, fits_at_most; /* largest x that surely fits, that may; 0: none */
};

/* "NAME=A,B". False where it is not, or A and B are not two different numbers above 0. */
bool ms_prediction_parse(const char *text, struct ms_prediction *prediction);

/* Adds a site, which holds so many bytes at that moment, to a course. x: of the larger run; there
 * the course is what was measured. */
void ms_course_add(struct ms_course *course, const struct ms_fit *fit, double x, uint64_t bytes);

/* The peak of live bytes: the least and the most that the courses allow. */
double ms_prediction_low(const struct ms_prediction *prediction, double x);
double ms_prediction_high(const struct ms_prediction *prediction, double x);

/* After the last, with smaller_bytes, beside_bytes and cap_bytes set. */
void ms_prediction_finish(struct ms_prediction *prediction);

#endif
