/* SPDX-License-Identifier: Apache-2.0 */
/* Ends this process by a signal, after printing a prepared line. */
#include "shim/cli/launch/interrupt.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/plain.h"

#define COMMANDS_NS UINT64_C(200000000) /* a signal within this time was meant for the command */
#define LINE_BYTES  8192
#define CLEAR       "\r\x1b[K" /* clears the line of the progress bar */

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static char text[LINE_BYTES]; /* empty: prints nothing */
static pid_t owner;           /* a child that was forked meanwhile prints nothing */
static uint64_t begun_ns;

static void end(int signal_number)
{
    sigset_t one;

    if (ms_clock_ns() - begun_ns < COMMANDS_NS) {
        return;
    }
    if (getpid() == owner) {
        (void)!write(STDERR_FILENO, text, strlen(text));
    }
    (void)signal(signal_number, SIG_DFL);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, signal_number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    (void)raise(signal_number);
}

static sigset_t all_ending(void)
{
    sigset_t all;

    (void)sigemptyset(&all);
    for (size_t i = 0; i < sizeof(ending) / sizeof(*ending); i++) {
        (void)sigaddset(&all, ending[i]);
    }
    return all;
}

void ms_interrupt_begin(const char *line)
{
    const sigset_t all = all_ending();
    const struct timespec now = {0};
    const struct sigaction action = {.sa_handler = end, .sa_mask = all, .sa_flags = SA_RESTART};
    char plain[LINE_BYTES - sizeof(CLEAR) - 1];

    text[0] = '\0';
    if (line) {
        (void)ms_plain_text(line, plain, sizeof(plain));
        (void)snprintf(text, sizeof(text), "%s%s\n", isatty(STDERR_FILENO) ? CLEAR : "", plain);
    }
    owner = getpid();
    begun_ns = ms_clock_ns();
    while (sigtimedwait(&all, NULL, &now) > 0) {
    }
    for (size_t i = 0; i < sizeof(ending) / sizeof(*ending); i++) {
        struct sigaction before;

        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            (void)sigaction(ending[i], &action, NULL);
        }
    }
    (void)sigprocmask(SIG_UNBLOCK, &all, NULL);
}

void ms_interrupt_end(void)
{
    const sigset_t all = all_ending();

    (void)sigprocmask(SIG_BLOCK, &all, NULL);
}
