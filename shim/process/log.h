/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr, one write each, with the prefix "memshim: ". Never allocates, reports no
 * failure, keeps errno. Any thread, any time. */
#ifndef MEMSHIM_SHIM_PROCESS_LOG_H
#define MEMSHIM_SHIM_PROCESS_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/tables/options.h"

/* Warn: what a user must know, each thing once. Prints nothing in a fork child. Lines are cut at 1
 * KiB. Warnings are also notes in the trace. */
__attribute__((format(printf, 2, 3))) void ms_log(enum ms_log_level level, const char *format, ...);

/* Warns of what all processes of a run were given alike (an option): one of them prints the line
 * (once_in_run.h), and all have it as a note. */
void ms_log_in_run(const char *sentence);

/* As ms_log at warn level, for lines that warn of nothing (first use of a device, the end). They
 * are not notes in the trace. */
__attribute__((format(printf, 1, 2))) void ms_say(const char *format, ...);

/* A warning of something that will end the program. It names the switch that keeps memshim out. */
__attribute__((format(printf, 1, 2))) void ms_log_fatal(const char *format, ...);

/* Logs the line at the first time that this statement is reached in the process. */
#define MS_LOG_ONCE(level, ...) MS_ONCE(ms_log((level), __VA_ARGS__))
#define MS_LOG_FATAL_ONCE(...)  MS_ONCE(ms_log_fatal(__VA_ARGS__))

#define MS_ONCE(say)                                                              \
    do {                                                                          \
        static atomic_flag ms_said = ATOMIC_FLAG_INIT;                            \
        if (!atomic_flag_test_and_set_explicit(&ms_said, memory_order_relaxed)) { \
            say;                                                                  \
        }                                                                         \
    } while (0)

#endif
