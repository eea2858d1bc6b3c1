/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end `memshim run` while it makes reports. Before that, it passes signals on to the
 * command (supervise.h). */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_INTERRUPT_H
#define MEMSHIM_SHIM_CLI_LAUNCH_INTERRUPT_H

/* Called after ms_supervise. Until ms_interrupt_end, SIGINT, SIGTERM, SIGHUP and SIGQUIT end this
 * process at once, by that signal, unless it was started with them ignored. Before that it writes
 * `line`, if not null, to stderr. Signals that have arrived already were meant for the command, and
 * so is one that arrives within a fifth of a second: launchers signal a process and then its
 * group. */
void ms_interrupt_begin(const char *line);
void ms_interrupt_end(void);

#endif
