/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the progress bar on the terminal. */
#include "report/read/progress.h"
#include "allocator/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NS  MS_NS_PER_S
#define REDRAW_NS UINT64_C(100000000)
#define BAR_CELLS 30u
#define CLEAR     "\r\x1b[K"

static struct {
    bool begun;
    size_t number, of;
    uint64_t start_ns, shown_ns; /* shown_ns: since the start; 0: nothing is on the screen */
} bar;

static void draw(const char *line)
{
    /* A terminal that is gone is no reason to fail. */
    (void)!write(STDERR_FILENO, line, strlen(line));
}

void ms_progress_begin(size_t number, size_t of)
{
    bar.begun = isatty(STDERR_FILENO) == 1;
    bar.number = number;
    bar.of = of;
    if (number <= 1) {
        bar.start_ns = ms_clock_ns();
    }
    bar.shown_ns = 0;
}

void ms_progress_end(void)
{
    if (bar.shown_ns > 0) {
        draw(CLEAR);
    }
    bar.begun = false;
    bar.shown_ns = 0;
}

bool ms_progress_line(const char *stage, uint64_t done, uint64_t total, uint64_t at_ns,
                      uint64_t shown_ns, char *line, size_t line_bytes)
{
    char cells[BAR_CELLS + 1];
    const double share = total == 0 ? 0 : (double)(done < total ? done : total) / (double)total;
    const unsigned full = (unsigned)(share * BAR_CELLS);

    if (at_ns < FIRST_NS || (shown_ns > 0 && at_ns - shown_ns < REDRAW_NS)) {
        return false;
    }
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', full);
    cells[BAR_CELLS] = '\0';
    (void)snprintf(line, line_bytes, CLEAR "memshim: %s [%s] %u %%", stage, cells,
                   (unsigned)(share * 100));
    return true;
}

void ms_progress_note(const char *stage, uint64_t done, uint64_t total)
{
    char line[MS_PROGRESS_LINE_BYTES], which[MS_PROGRESS_LINE_BYTES / 2];
    const uint64_t at_ns = bar.begun ? ms_clock_ns() - bar.start_ns : 0;

    if (bar.begun && bar.of > 1) {
        (void)snprintf(which, sizeof(which), "%zu of %zu, %s", bar.number, bar.of, stage);
        stage = which;
    }
    if (bar.begun &&
        ms_progress_line(stage, done, total, at_ns, bar.shown_ns, line, sizeof(line))) {
        bar.shown_ns = at_ns;
        draw(line);
    }
}
