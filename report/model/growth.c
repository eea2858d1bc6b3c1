/* SPDX-License-Identifier: Apache-2.0 */
/* Finds call sites whose live bytes rise from step to step: by a robust line through samples, or by
 * the memory left from rounds. */
#include "report/model/growth.h"

#include <stdlib.h>
#include <string.h>

#include "report/model/kinds.h"

#define PARTS          6u   /* the most parts of the growing time: it must rise in each */
#define PART           4u   /* the fewest steps of a part */
#define WORTH_SPLIT    0.25 /* two lines must lower the squared error to this share */
#define MOST_SPLITS    8
#define NORMAL         1.4826 /* from a median deviation to a standard deviation */
#define CONFIDENCE     1.96
#define FEWEST_ROUNDS  2u
#define FEWEST_RISES   3u
#define FEWEST_PAUSED  4u /* rises with pauses */
#define MOST_OLD       8u /* a queue's end has less than 1/n of its rise from the first half */
#define FEWEST_DRAINED 3u /* no pause of a drain is longer than 1/n of it */
#define MOST_INPUTS    4  /* in a step, of one site; twice as many, as they get longer */
/* A slope counts if it is this many errors from 0: of many sites, some would else seem to grow by
 * chance. */
#define CLEARLY 5

/* ---- a robust line ---- */

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* Sorts them. */
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double root(double value)
{
    double guess = value > 1 ? value : 1;

    for (int i = 0; i < 600 && value > 0; i++) {
        const double next = (guess + value / guess) / 2;

        if (next >= guess) {
            break;
        }
        guess = next;
    }
    return value > 0 ? guess : 0;
}

/* The median deviation from the line with that slope, as a standard deviation. */
static double spread_around(const uint64_t *x, const uint64_t *bytes, size_t count, double slope)
{
    double left[MS_GROWTH_SAMPLES];

    for (size_t i = 0; i < count; i++) {
        left[i] = (double)bytes[i] - (double)bytes[0] - slope * (double)(x[i] - x[0]);
    }

    const double middle = median(left, count);

    for (size_t i = 0; i < count; i++) {
        left[i] = left[i] > middle ? left[i] - middle : middle - left[i];
    }
    return NORMAL * median(left, count);
}

/* The root of the summed squares of the distances of x from their mean. */
static double width_of(const uint64_t *x, size_t count)
{
    double mean = 0, sum = 0;

    for (size_t i = 0; i < count; i++) {
        mean += (double)(x[i] - x[0]) / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        const double away = (double)(x[i] - x[0]) - mean;

        sum += away * away;
    }
    return root(sum);
}

/* The median of the slopes between samples that are half of them apart. A few odd samples do not
 * change it, and long distances make it exact. */
bool ms_growth_fit(const uint64_t *x, const uint64_t *bytes, size_t first, size_t count,
                   struct ms_slope *slope)
{
    double slopes[MS_GROWTH_SAMPLES];

    if (count > MS_GROWTH_SAMPLES || count < first + 2) {
        return false;
    }
    x += first;
    bytes += first;
    count -= first;

    const size_t apart = count / 2;

    for (size_t i = 0; i + apart < count; i++) {
        slopes[i] = ((double)bytes[i + apart] - (double)bytes[i]) / (double)(x[i + apart] - x[i]);
    }
    slope->first = first;
    slope->bytes_per_step = median(slopes, count - apart);
    slope->error =
        CONFIDENCE * spread_around(x, bytes, count, slope->bytes_per_step) / width_of(x, count);
    return true;
}

/* ---- where it begins ---- */

/* Sums over samples, which give the least squares of any part in one step. */
struct sums {
    double n, x, y, xx, xy, yy;
};

static struct sums minus(const struct sums *whole, const struct sums *part)
{
    return (struct sums){whole->n - part->n,   whole->x - part->x,   whole->y - part->y,
                         whole->xx - part->xx, whole->xy - part->xy, whole->yy - part->yy};
}

/* The sum of squared errors of the best straight line. */
static double left_by_line(const struct sums *all)
{
    const double xx = all->xx - all->x * all->x / all->n;
    const double xy = all->xy - all->x * all->y / all->n;
    const double yy = all->yy - all->y * all->y / all->n;
    const double left = xx > 0 ? yy - xy * xy / xx : yy;

    return left > 0 ? left : 0;
}

/* The first sample from which one straight line is good: if two lines are much better, it is the
 * beginning of the second. */
static size_t last_bend(const uint64_t *x, const uint64_t *bytes, size_t first, size_t count)
{
    struct sums before[MS_GROWTH_SAMPLES + 1] = {{0}};

    for (size_t i = first; i < count; i++) {
        const double at = (double)(x[i] - x[first]);
        const double value = (double)bytes[i] - (double)bytes[first];
        const struct sums *last = &before[i - first];

        before[i - first + 1] =
            (struct sums){last->n + 1,        last->x + at,          last->y + value,
                          last->xx + at * at, last->xy + at * value, last->yy + value * value};
    }

    const struct sums *all = &before[count - first];
    const double one = left_by_line(all);
    double best = one;
    size_t bend = first;

    /* The sample at the bend belongs to both lines. */
    for (size_t i = first + 1; i + 2 < count; i++) {
        const struct sums after = minus(all, &before[i - first]);
        const double two = left_by_line(&before[i - first + 1]) + left_by_line(&after);

        if (two < best) {
            best = two;
            bend = i;
        }
    }
    return best < WORTH_SPLIT * one ? bend : first;
}

/* The part of each sample that stays for good: no later sample has less. */
static void keep_what_stays(const uint64_t *bytes, size_t count, uint64_t *stays)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = count; i-- > 0;) {
        least = bytes[i] < least ? bytes[i] : least;
        stays[i] = least;
    }
}

/* Whether each part of the time has a fair part of the whole rise. */
static bool rises_throughout(const uint64_t *stays, size_t first, size_t count)
{
    const size_t steps = count - 1 - first;
    const size_t parts = steps / PART < PARTS ? steps / PART : PARTS;
    const uint64_t rise = stays[count - 1] - stays[first];

    for (size_t part = 0; part < parts; part++) {
        const size_t from = first + part * steps / parts;
        const size_t to = first + (part + 1) * steps / parts;

        if (stays[to] - stays[from] < rise / (4 * parts) || stays[to] == stays[from]) {
            return false;
        }
    }
    return true;
}

bool ms_growth_find(const uint64_t *x, const uint64_t *bytes, size_t count, struct ms_slope *slope)
{
    uint64_t stays[MS_GROWTH_SAMPLES];
    size_t first = 0;

    if (count < MS_GROWTH_FEWEST || count > MS_GROWTH_SAMPLES || bytes[count - 1] <= bytes[0]) {
        return false;
    }
    keep_what_stays(bytes, count, stays);
    for (int i = 0; i < MOST_SPLITS; i++) {
        const size_t bend = last_bend(x, stays, first, count);

        if (bend == first) {
            break;
        }
        first = bend;
    }
    if (count - first < MS_GROWTH_FEWEST || !rises_throughout(stays, first, count) ||
        !ms_growth_fit(x, bytes, first, count, slope)) {
        return false;
    }

    const double grown = slope->bytes_per_step * (double)(x[count - 1] - x[first]);

    return slope->bytes_per_step > CLEARLY * slope->error &&
           grown >
               3 * spread_around(x + first, bytes + first, count - first, slope->bytes_per_step);
}

/* ---- by few samples ---- */

/* Whether no rise is half as high or twice as high as the average. */
static bool rise_alike(const uint64_t *bytes, size_t count)
{
    const size_t rises = count - 1;
    const uint64_t whole = bytes[rises] > bytes[0] ? bytes[rises] - bytes[0] : 0;

    for (size_t i = 0; i < rises; i++) {
        const uint64_t rise = bytes[i + 1] > bytes[i] ? bytes[i + 1] - bytes[i] : 0;

        if (rise == 0 || rise < whole / (2 * rises) || rise / 2 > whole / rises) {
            return false;
        }
    }
    return true;
}

bool ms_growth_of_few(const uint64_t *bytes, size_t count, size_t *first)
{
    for (*first = 0; *first <= 1 && *first + FEWEST_RISES < count; ++*first) {
        if (rise_alike(bytes + *first, count - *first)) {
            return true;
        }
    }
    return false;
}

/* ---- rise by rise ---- */

void ms_rise_add(struct ms_rise *rise, uint64_t round, uint64_t bytes, uint64_t at)
{
    const uint64_t by = bytes > rise->bytes ? bytes - rise->bytes : 0;
    const uint64_t mean = rise->rises > 0 ? (rise->bytes - rise->first_bytes) / rise->rises : by;

    if (bytes == rise->bytes) {
        return;
    }
    if (rise->rises == 0 || by < mean / 2 || by / 2 > mean) {
        *rise = (struct ms_rise){
            .first_bytes = by > 0 ? rise->bytes : bytes, .since = at, .longest = 1};
    } else if (round - rise->round > rise->longest) {
        rise->longest = round - rise->round;
    }
    rise->rises += by > 0;
    rise->bytes = bytes;
    rise->round = round;
}

bool ms_rise_goes_on(const struct ms_rise *rise, uint64_t now)
{
    return rise->rises > 0 && now <= rise->round + rise->longest;
}

static bool falls(const uint64_t *bytes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (bytes[i] < bytes[i - 1]) {
            return true;
        }
    }
    return false;
}

bool ms_growth_of_pauses(const uint64_t *x, const uint64_t *bytes, size_t count,
                         struct ms_rise *rise)
{
    if (count <= FEWEST_PAUSED || falls(bytes, count)) {
        return false;
    }
    *rise = (struct ms_rise){.bytes = bytes[0]};
    for (size_t i = 1; i < count; i++) {
        ms_rise_add(rise, x[i], bytes[i], i);
    }
    if (rise->rises < FEWEST_PAUSED || !ms_rise_goes_on(rise, x[count - 1])) {
        return false;
    }

    const uint64_t since = x[rise->since], last = x[count - 1];

    return count - rise->since >= PART * rise->rises &&
           2 * (rise->round - since) >= rise->longest * (rise->rises - 1) &&
           2 * (last - since) >= last - x[0];
}

/* ---- by age ---- */

bool ms_growth_is_queue(const uint64_t *bytes, const uint64_t *kept, size_t first, size_t count)
{
    const size_t last = count - 1, middle = first + (last - first) / 2;
    const uint64_t grown = bytes[last] > bytes[first] ? bytes[last] - bytes[first] : 0;

    /* The age of some of it is not known. */
    if (kept[last] < bytes[last] / 4 * 3) {
        return false;
    }
    for (size_t i = first; i < last; i++) {
        if (kept[i + 1] - kept[i] >= grown / 2) {
            return false;
        }
    }
    return kept[middle] - kept[first] < grown / MOST_OLD;
}

bool ms_growth_drains(const struct ms_drain *drain, uint64_t grown_bytes, uint64_t made_ns)
{
    const uint64_t whole_ns = drain->last_ns - drain->first_ns;

    return drain->bytes >= grown_bytes / 4 * 3 && whole_ns >= made_ns &&
           drain->longest_ns <= whole_ns / FEWEST_DRAINED;
}

/* ---- what is longer in each step ---- */

/* Whether the row is of a step's inputs: few are live at once. */
static bool is_longer_input(const struct ms_growing_site *row)
{
    return row->rounds == 0 && row->kind == MS_KIND_INPUTS && row->held <= MOST_INPUTS;
}

size_t ms_growth_drop_longer(struct ms_growing_site *rows, size_t count, uint64_t step)
{
    bool longer = false;
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        longer |= is_longer_input(&rows[i]);
    }
    for (size_t i = 0; longer && i < count; i++) {
        if (rows[i].rounds > 0 || rows[i].held >= (double)(step - rows[i].since_step) / 2) {
            rows[left++] = rows[i];
        }
    }
    return longer ? left : count;
}

/* ---- by memory left from rounds ---- */

static bool like_each_other(const struct ms_kept_round *rounds, size_t count)
{
    uint64_t all = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        all += rounds[i].bytes;
        most = rounds[i].bytes > most ? rounds[i].bytes : most;
    }
    return most <= all / 4 * 3 && rounds[count - 1].bytes >= all / (4 * count);
}

/* Whether the last round that left something is no longer ago than the longest gap between two. */
static bool goes_on(const struct ms_kept_round *rounds, size_t count, uint64_t now)
{
    uint64_t longest = 1;

    for (size_t i = 1; i < count; i++) {
        const uint64_t apart = rounds[i].round - rounds[i - 1].round;

        longest = apart > longest ? apart : longest;
    }
    return now <= rounds[count - 1].round + longest;
}

bool ms_growth_of_rounds(const struct ms_kept_round *rounds, size_t count, uint64_t now,
                         size_t *first, enum ms_growth_degree *degree)
{
    for (*first = 0; *first <= 1 && *first + FEWEST_ROUNDS <= count; ++*first) {
        const size_t left = count - *first;

        if (like_each_other(rounds + *first, left) && goes_on(rounds + *first, left, now)) {
            *degree = left >= MS_GROWTH_FEWEST ? MS_GROWTH_SEEN : MS_GROWTH_LIKELY;
            return true;
        }
    }
    return false;
}
