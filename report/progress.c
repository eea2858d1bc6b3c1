#include "report/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS  UINT64_C(1000000000)
#define REDRAW_NS UINT64_C(100000000)
#define BAR_CELLS 30u
#define CLEAR     "\r\x1b[K"

static struct {
    bool begun;
    uint64_t start_ns, shown_ns; /* shown: since the start; 0: nothing is on the screen */
} bar;

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void draw(const char *line)
{
    /* A terminal that is gone is no reason to fail. */
    (void)!write(STDERR_FILENO, line, strlen(line));
}

void ms_progress_begin(void)
{
    bar.begun = isatty(STDERR_FILENO) == 1;
    bar.start_ns = now_ns();
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
    char line[MS_PROGRESS_LINE_BYTES];
    const uint64_t at_ns = bar.begun ? now_ns() - bar.start_ns : 0;

    if (bar.begun &&
        ms_progress_line(stage, done, total, at_ns, bar.shown_ns, line, sizeof(line))) {
        bar.shown_ns = at_ns;
        draw(line);
    }
}
