/* SPDX-License-Identifier: Apache-2.0 */
/* What call sites hold, fitted to the batch or the length of two runs; and moments by name. */
#include <criterion/criterion.h>

#include "report/model/compare/predict.h"
#include "report/model/moment.h"

#define MIB UINT64_C(1048576)

static struct ms_fit fit(uint64_t small, uint64_t large)
{
    return ms_fit_find((const double[2]){8, 16}, (const uint64_t[2]){small * MIB, large * MIB});
}

/* Within a thousandth. */
static void check_at(const struct ms_fit *of, double x, uint64_t low, uint64_t high)
{
    cr_assert_float_eq(ms_fit_bytes(of->low, x) / (double)MIB, (double)low, (double)low / 1000);
    cr_assert_float_eq(ms_fit_bytes(of->high, x) / (double)MIB, (double)high, (double)high / 1000);
}

Test(predict, pure_shapes_are_told_apart)
{
    struct ms_fit found = fit(100, 100);

    cr_assert_eq(found.shape, MS_SHAPE_CONSTANT);
    check_at(&found, 64, 100, 100);
    found = fit(100, 200);
    cr_assert_eq(found.shape, MS_SHAPE_LINEAR);
    check_at(&found, 64, 800, 800);
    found = fit(100, 400);
    cr_assert_eq(found.shape, MS_SHAPE_QUADRATIC);
    check_at(&found, 64, 6400, 6400);
}

Test(predict, mixed_shapes_are_a_range)
{
    /* 60 + 40 x / 8, or 86 2/3 + 13 1/3 (x / 8)^2. */
    struct ms_fit found = fit(100, 140);

    cr_assert_eq(found.shape, MS_SHAPE_PART_LINEAR);
    check_at(&found, 8, 100, 100);
    check_at(&found, 16, 140, 140);
    check_at(&found, 80, 460, 1420);
    /* 50 x / 8 + 50 (x / 8)^2, or 33 1/3 + 66 2/3 (x / 8)^2. */
    found = fit(100, 300);
    cr_assert_eq(found.shape, MS_SHAPE_PART_SQUARE);
    check_at(&found, 16, 300, 300);
    check_at(&found, 80, 5500, 6700);
    found = fit(100, 500);
    cr_assert_eq(found.shape, MS_SHAPE_STEEPER);
    check_at(&found, 32, 2000, 4000);
}

Test(predict, what_no_shape_explains_stays_as_it_is)
{
    struct ms_fit found = fit(0, 70);

    cr_assert_eq(found.shape, MS_SHAPE_ONE_RUN);
    check_at(&found, 640, 70, 70);
    found = fit(70, 30);
    cr_assert_eq(found.shape, MS_SHAPE_FALLING);
    check_at(&found, 640, 30, 70);
}

Test(predict, the_largest_that_fits)
{
    struct ms_prediction prediction;
    struct ms_fit constant = fit(100, 100), linear = fit(80, 160);

    cr_assert(ms_prediction_parse("batch=8,16", &prediction));
    prediction.course_count = 1;
    ms_course_add(&prediction.courses[0], &constant, 16, 100 * MIB);
    ms_course_add(&prediction.courses[0], &linear, 16, 160 * MIB);
    prediction.smaller_bytes = 180 * MIB;
    prediction.beside_bytes = 50 * MIB;
    prediction.cap_bytes = 1000 * MIB;
    ms_prediction_finish(&prediction);
    /* 100 + 50 + 10 a sample. */
    cr_assert_float_eq(prediction.fits, 85, 1e-9);
    cr_assert_float_eq(prediction.fits_at_most, 85, 1e-9);
    cr_assert_not(prediction.fits_all);
    cr_assert_float_eq(prediction.at[2], 32, 1e-9);
}

/* Scores are small at the peak of both runs, and large at another moment. */
Test(predict, the_peak_may_become_another_moment)
{
    struct ms_prediction prediction;
    struct ms_fit linear = fit(80, 160), square = fit(25, 100);

    cr_assert(ms_prediction_parse("length=8,16", &prediction));
    prediction.course_count = 2;
    ms_course_add(&prediction.courses[0], &linear, 16, 160 * MIB);
    ms_course_add(&prediction.courses[1], &linear, 16, 40 * MIB);
    ms_course_add(&prediction.courses[1], &square, 16, 100 * MIB);
    prediction.smaller_bytes = 80 * MIB;
    ms_prediction_finish(&prediction);
    cr_assert_not(prediction.fails);
    cr_assert_float_eq(ms_prediction_high(&prediction, 16), 160 * (double)MIB, 1);
    /* 4 x 40 and 16 x 100, not 4 x 160. */
    cr_assert_float_eq(ms_prediction_high(&prediction, 64), 1760 * (double)MIB, 1);
    cr_assert_float_eq(ms_prediction_low(&prediction, 64), 1760 * (double)MIB, 1);
}

Test(predict, what_does_not_hold_for_the_smaller_run_is_not_said)
{
    struct ms_prediction prediction;
    struct ms_fit linear = fit(80, 160);

    cr_assert(ms_prediction_parse("batch=16,8", &prediction));
    prediction.course_count = 1;
    ms_course_add(&prediction.courses[0], &linear, 16, 160 * MIB);
    prediction.smaller_bytes = 120 * MIB;
    prediction.cap_bytes = 1000 * MIB;
    ms_prediction_finish(&prediction);
    cr_assert(prediction.fails);
    cr_assert_eq(prediction.fits, 0);
}

Test(predict, what_is_no_prediction_is_refused)
{
    static const char *const wrong[] = {"",           "batch",       "batch=",     "batch=8",
                                        "batch=8,",   "batch=8,8",   "batch=0,8",  "batch=-1,8",
                                        "=8,16",      "batch=8,16x", "batch=8;16", "batch=nan,8",
                                        "batch=8,inf"};
    struct ms_prediction prediction;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_not(ms_prediction_parse(wrong[i], &prediction), "%s", wrong[i]);
    }
    cr_assert(ms_prediction_parse("lr=0.5,1.5", &prediction));
    cr_assert_not(prediction.whole);
}

Test(moment, names_of_moments)
{
    static const struct {
        const char *text;
        enum ms_moment_word word;
        uint64_t number;
    } good[] = {{"peak", MS_AT_PEAK, 0},
                {"oom", MS_AT_OOM, 0},
                {"end", MS_AT_END, 0},
                {"40m", MS_AT_TIME, UINT64_C(2400000000000)},
                {"2.5s", MS_AT_TIME, UINT64_C(2500000000)},
                {"1h30m", MS_AT_TIME, UINT64_C(5400000000000)},
                {"20ms", MS_AT_TIME, UINT64_C(20000000)},
                {"step:1200", MS_AT_STEP, 1200}};
    static const char *const wrong[] = {"",    "noon",  "40",     "m",       "4.4.4s",
                                        "-3s", "step:", "step:x", "step:-1", "40m!"};
    struct ms_moment_name name;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_assert(ms_moment_parse(good[i].text, &name), "%s", good[i].text);
        cr_assert_eq(name.word, good[i].word, "%s", good[i].text);
        cr_assert_eq(name.number, good[i].number, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_not(ms_moment_parse(wrong[i], &name), "%s", wrong[i]);
    }
}
