/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of memshim top: its page, its keys, its size. */
#include "shim/cli/top/terminal.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"

#define ENTER_SCREEN \
    "\033[?1049h\033[?25l\033[?7l" /* the alternate page, no cursor, long lines are cut */
#define LEAVE_SCREEN "\033[?7h\033[?25h\033[?1049l"

static struct {
    bool redrawn, keys;
    struct termios before; /* if `keys` */
    sigset_t signals;
    int signal_fd; /* -1: none */
} terminal = {.signal_fd = -1};

size_t ms_terminal_width(void)
{
    struct winsize window = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

bool ms_terminal_has_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
        }
    }
    return false;
}

/* Keys come one by one without echo; those that make signals still do. */
static void take_keys(void)
{
    struct termios raw;
    terminal.keys = tcgetattr(STDIN_FILENO, &terminal.before) == 0;
    if (terminal.keys) {
        raw = terminal.before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        /* A background job does not own the terminal. */
        terminal.keys =
            tcgetpgrp(STDIN_FILENO) == getpgrp() && tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
}

void ms_terminal_begin(bool redraw)
{
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    (void)sigemptyset(&terminal.signals);
    for (size_t i = 0; i < sizeof(watched) / sizeof(*watched); i++) {
        (void)sigaddset(&terminal.signals, watched[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &terminal.signals, NULL);
    terminal.signal_fd = signalfd(-1, &terminal.signals, SFD_CLOEXEC | SFD_NONBLOCK);
    terminal.redrawn = redraw;
    if (redraw) {
        take_keys();
        (void)fputs(ENTER_SCREEN, stdout);
    }
}

void ms_terminal_end(void)
{
    if (terminal.redrawn) {
        (void)fputs(LEAVE_SCREEN, stdout);
    }
    if (terminal.keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
    }
    if (terminal.signal_fd >= 0) {
        (void)close(terminal.signal_fd);
    }
    terminal.redrawn = terminal.keys = false;
    terminal.signal_fd = -1;
}

void ms_terminal_draw(const char *text, size_t bytes)
{
    struct winsize window = {0};
    int lines = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 1
                    ? window.ws_row - 1
                    : INT_MAX;
    const char *end = text + bytes;
    (void)fputs("\033[H", stdout);
    while (text < end && lines-- > 0) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)((line_end != NULL ? line_end : end) - text);
        (void)fwrite(text, 1, length, stdout);
        (void)fputs("\033[K\r\n", stdout);
        text += length + 1;
    }
    (void)fputs("\033[J", stdout);
    (void)fflush(stdout);
}

/* The first key that was pressed since; the others are dropped. */
static int pressed_key(void)
{
    char keys[64];
    const ssize_t got = read(STDIN_FILENO, keys, sizeof(keys));
    if (got <= 0) {
        terminal.keys = false; /* end of input: no more keys */
        return 0;
    }
    return (unsigned char)keys[0];
}

int ms_terminal_wait(uint64_t interval_ns)
{
    struct pollfd ready[2] = {{.fd = terminal.signal_fd, .events = POLLIN},
                              {.fd = terminal.keys ? STDIN_FILENO : -1, .events = POLLIN}};
    const struct timespec span = {(time_t)(interval_ns / MS_NS_PER_S),
                                  (long)(interval_ns % MS_NS_PER_S)};
    struct signalfd_siginfo info;
    if (ppoll(ready, 2, &span, NULL) <= 0) {
        return 0;
    }
    if (ready[0].revents != 0) {
        const ssize_t got = read(terminal.signal_fd, &info, sizeof(info));
        return got == (ssize_t)sizeof(info) && info.ssi_signo != SIGWINCH ? MS_TERMINAL_END : 0;
    }
    return pressed_key();
}
