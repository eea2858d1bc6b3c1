/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a curve through two runs, and solves it for what still fits the cap. */
#include "report/model/predict.h"

#include <stdlib.h>
#include <string.h>

#define TOLERANCE   0.02 /* of bytes: sizes are rounded up, and runs differ a little */
#define LEAST_BYTES 4096.0
#define MOST_FACTOR 1024.0 /* times the larger x, beyond which nothing is looked at */
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

/* Through both points, as a x^i + b x^j. */
static void through(double parts[4], const double x[2], const double y[2], int i, int j)
{
    const double determinant = power(x[0], i) * power(x[1], j) - power(x[1], i) * power(x[0], j);

    memset(parts, 0, 4 * sizeof(*parts));
    parts[i] = (y[0] * power(x[1], j) - y[1] * power(x[0], j)) / determinant;
    parts[j] = (power(x[0], i) * y[1] - power(x[1], i) * y[0]) / determinant;
}

/* Through the larger run alone, as a x^i. */
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
    case MS_SHAPE_PART_SQUARE: /* beyond the larger run the first is the flatter one */
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

void ms_prediction_add(struct ms_prediction *prediction, const struct ms_fit *fit)
{
    for (int i = 0; i < 4; i++) {
        prediction->low[i] += fit->low[i];
        prediction->high[i] += fit->high[i];
    }
}

static bool fits(const struct ms_prediction *prediction, const double parts[4], double x)
{
    return ms_fit_bytes(parts, x) + (double)prediction->beside_bytes <=
           (double)prediction->cap_bytes;
}

/* The largest x up to `most` with which it fits: parts only rise. */
static double largest(const struct ms_prediction *prediction, const double parts[4], double most)
{
    double low = 0, high = most;

    if (fits(prediction, parts, most)) {
        return most;
    }
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = low + (high - low) / 2;

        if (fits(prediction, parts, middle)) {
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
    const double most = larger * MOST_FACTOR;

    for (size_t i = 0; i < MS_PREDICTED; i++) {
        const double x = larger * factors[i];

        prediction->at[i] = prediction->whole ? (double)(uint64_t)x : x;
    }
    if (prediction->cap_bytes > 0) {
        prediction->fits = largest(prediction, prediction->high, most);
        prediction->fits_at_most = largest(prediction, prediction->low, most);
        if (prediction->fits_at_most < prediction->fits) { /* below the smaller run they cross */
            const double swap = prediction->fits;

            prediction->fits = prediction->fits_at_most;
            prediction->fits_at_most = swap;
        }
        prediction->fits_all = prediction->fits >= most;
    }
}
