/* SPDX-License-Identifier: Apache-2.0 */
/* What ends `memshim run` while it makes reports. Until then it passes signals on to the command
 * (supervise.h). */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_INTERRUPT_H
#define MEMSHIM_SHIM_CLI_LAUNCH_INTERRUPT_H

/* After ms_supervise: until ms_interrupt_end SIGINT, SIGTERM, SIGHUP and SIGQUIT end this process
 * at once, by that signal, unless it was started with them ignored. Before that `line`, if it is
 * not null, is written to the standard error. Those that have arrived already were meant for the
 * command, and so is one that arrives within a fifth of a second: launchers signal a process and
 * then its group. */
void ms_interrupt_begin(const char *line);
void ms_interrupt_end(void);

#endif
