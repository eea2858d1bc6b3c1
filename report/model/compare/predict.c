/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a curve through two runs, and finds the largest value that still fits the cap. */
#include "report/model/compare/predict.h"

#include <stdlib.h>
#include <string.h>

#define TOLERANCE   0.02 /* in bytes: sizes are rounded up, and runs differ a little */
#define LEAST_BYTES 4096.0
/* Of the value predicted for the smaller run; beyond that there is no prediction */
#define MOST_ERROR  0.1
#define MOST_FACTOR 1024.0 /* times the larger x: the end of the search */
#define HALVINGS    60

const char *ms_shape_name(enum ms_shape shape)
{
    static const char *const names[MS_SHAPE_COUNT] = {
        [MS_SHAPE_CONSTANT] = "constant",
        [MS_SHAPE_LINEAR] = "linear",
        [MS_SHAPE_QUADRATIC] = "quadratic",
        [MS_SHAPE_PART_LINEAR] = "constant + linear or quadratic",
        [MS_SHAPE_PART_SQUARE] = "quadratic + linear or constant",
        [MS_SHAPE_STEEPER] = "steeper than quadratic",
        [MS_SHAPE_FALLING] = "falling, taken as constant",
        [MS_SHAPE_ONE_RUN] = "in one run only, taken as constant",
    };

    return names[shape];
}

static bool near(double a, double b)
{
    const double distance = a > b ? a - b : b - a, larger = a > b ? a : b;

    return distance <= LEAST_BYTES || distance <= TOLERANCE * larger;
}

static double power(double x, int exponent)
{
    double value = 1;

    for (int i = 0; i < exponent; i++) {
        value *= x;
    }
    return value;
}

double ms_fit_bytes(const double parts[4], double x)
{
    return parts[0] + x * (parts[1] + x * (parts[2] + x * parts[3]));
}

/* Fits both points with a x^i + b x^j. */
static void through(double parts[4], const double x[2], const double y[2], int i, int j)
{
    const double determinant = power(x[0], i) * power(x[1], j) - power(x[1], i) * power(x[0], j);

    memset(parts, 0, 4 * sizeof(*parts));
    parts[i] = (y[0] * power(x[1], j) - y[1] * power(x[0], j)) / determinant;
    parts[j] = (power(x[0], i) * y[1] - power(x[1], i) * y[0]) / determinant;
}

/* Fits the larger run alone with a x^i. */
static void pure(double parts[4], double x, double y, int i)
{
    memset(parts, 0, 4 * sizeof(*parts));
    parts[i] = y / power(x, i);
}

static enum ms_shape shape_of(const double x[2], const double y[2])
{
    const double ratio = x[1] / x[0];

    if (y[0] == 0 || y[1] == 0) {
        return MS_SHAPE_ONE_RUN;
    }
    if (near(y[0], y[1])) {
        return MS_SHAPE_CONSTANT;
    }
    if (y[1] < y[0]) {
        return MS_SHAPE_FALLING;
    }
    if (near(y[0] * ratio, y[1])) {
        return MS_SHAPE_LINEAR;
    }
    if (near(y[0] * ratio * ratio, y[1])) {
        return MS_SHAPE_QUADRATIC;
    }
    if (y[1] < y[0] * ratio) {
        return MS_SHAPE_PART_LINEAR;
    }
    return y[1] < y[0] * ratio * ratio ? MS_SHAPE_PART_SQUARE : MS_SHAPE_STEEPER;
}

struct ms_fit ms_fit_find(const double x[2], const uint64_t bytes[2])
{
    const double y[2] = {(double)bytes[0], (double)bytes[1]};
    struct ms_fit fit = {.shape = (uint8_t)shape_of(x, y)};

    switch (fit.shape) {
    case MS_SHAPE_LINEAR:
        pure(fit.low, x[1], y[1], 1);
        break;
    case MS_SHAPE_QUADRATIC:
        pure(fit.low, x[1], y[1], 2);
        break;
    case MS_SHAPE_PART_LINEAR:
        through(fit.low, x, y, 0, 1);
        through(fit.high, x, y, 0, 2);
        return fit;
    case MS_SHAPE_PART_SQUARE: /* beyond the larger run the first curve is the flatter one */
        through(fit.low, x, y, 1, 2);
        through(fit.high, x, y, 0, 2);
        return fit;
    case MS_SHAPE_STEEPER:
        pure(fit.low, x[1], y[1], 2);
        pure(fit.high, x[1], y[1], 3);
        return fit;
    case MS_SHAPE_FALLING:
        pure(fit.low, x[1], y[1], 0);
        pure(fit.high, x[1], y[0], 0);
        return fit;
    default:
        pure(fit.low, x[1], y[0] > y[1] ? y[0] : y[1], 0);
        break;
    }
    memcpy(fit.high, fit.low, sizeof(fit.high));
    return fit;
}

bool ms_prediction_parse(const char *text, struct ms_prediction *prediction)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    char *end;

    memset(prediction, 0, sizeof(*prediction));
    if (length == 0 || length >= sizeof(prediction->name)) {
        return false;
    }
    memcpy(prediction->name, text, length);
    prediction->x[0] = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != ',') {
        return false;
    }
    text = end + 1;
    prediction->x[1] = strtod(text, &end);
    prediction->whole = !strchr(equals, '.');
    return end != text && *end == '\0' && prediction->x[0] > 0 && prediction->x[1] > 0 &&
           prediction->x[0] < 1e15 && prediction->x[1] < 1e15 &&
           prediction->x[0] != prediction->x[1];
}

static void add_share(double to[4], const double parts[4], double x, uint64_t bytes)
{
    const double whole = ms_fit_bytes(parts, x);

    if (whole <= 0) {
        to[0] += (double)bytes;
        return;
    }
    for (int i = 0; i < 4; i++) {
        to[i] += parts[i] * ((double)bytes / whole);
    }
}

void ms_course_add(struct ms_course *course, const struct ms_fit *fit, double x, uint64_t bytes)
{
    add_share(course->low, fit->low, x, bytes);
    add_share(course->high, fit->high, x, bytes);
}

double ms_prediction_low(const struct ms_prediction *prediction, double x)
{
    double most = 0;

    for (size_t i = 0; i < prediction->course_count; i++) {
        const double low = ms_fit_bytes(prediction->courses[i].low, x);
        const double high = ms_fit_bytes(prediction->courses[i].high, x);
        const double least = low < high ? low : high; /* below the larger run they cross */

        most = least > most ? least : most;
    }
    return most;
}

double ms_prediction_high(const struct ms_prediction *prediction, double x)
{
    double most = 0;

    for (size_t i = 0; i < prediction->course_count; i++) {
        const double low = ms_fit_bytes(prediction->courses[i].low, x);
        const double high = ms_fit_bytes(prediction->courses[i].high, x);

        most = low > most ? low : most;
        most = high > most ? high : most;
    }
    return most;
}

/* Whether the prediction for the smaller run is wrong. */
static bool fails(const struct ms_prediction *prediction, double smaller)
{
    const double is = (double)prediction->smaller_bytes;

    return ms_prediction_low(prediction, smaller) > is * (1 + MOST_ERROR) + LEAST_BYTES ||
           ms_prediction_high(prediction, smaller) < is * (1 - MOST_ERROR) - LEAST_BYTES;
}

typedef double peak_at(const struct ms_prediction *prediction, double x);

static bool fits(const struct ms_prediction *prediction, peak_at *peak, double x)
{
    return peak(prediction, x) + (double)prediction->beside_bytes <= (double)prediction->cap_bytes;
}

/* The largest x up to `most` that fits: courses only rise. */
static double largest(const struct ms_prediction *prediction, peak_at *peak, double most)
{
    double low = 0, high = most;

    if (fits(prediction, peak, most)) {
        return most;
    }
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = low + (high - low) / 2;

        if (fits(prediction, peak, middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return prediction->whole ? (double)(uint64_t)(low + 1e-6) : low;
}

void ms_prediction_finish(struct ms_prediction *prediction)
{
    static const double factors[MS_PREDICTED] = {1, 1.5, 2, 4};
    const double larger = prediction->x[0] > prediction->x[1] ? prediction->x[0] : prediction->x[1];
    const double smaller = larger == prediction->x[0] ? prediction->x[1] : prediction->x[0];
    const double most = larger * MOST_FACTOR;

    for (size_t i = 0; i < MS_PREDICTED; i++) {
        const double x = larger * factors[i];

        prediction->at[i] = prediction->whole ? (double)(uint64_t)x : x;
    }
    prediction->fails = fails(prediction, smaller);
    if (prediction->cap_bytes > 0 && !prediction->fails) {
        prediction->fits = largest(prediction, ms_prediction_high, most);
        prediction->fits_at_most = largest(prediction, ms_prediction_low, most);
        prediction->fits_all = prediction->fits >= most;
    }
}
