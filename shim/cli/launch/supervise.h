/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command as a child process that behaves as if it had been started in our place. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_SUPERVISE_H
#define MEMSHIM_SHIM_CLI_LAUNCH_SUPERVISE_H

#include <sys/types.h>

/* Starts argv[0] (searched on PATH) with this environment, passes every signal on to it, stops and
 * continues with it, and returns its wait status when it has ended. The command is in our process
 * group if that is the terminal's, so that it keeps the terminal; otherwise in a group of its own.
 * It ends if we are killed. From here on the process handles no signal by itself; a further command
 * is started with the signals that this process was started with.
 *
 * -1 if it could not be started; *error is the errno. One thread only. */
int ms_supervise(char *const *argv, char *const *environment, int *error);

/* Called now and then while the command runs; returns the signal to send to it, 0: none. */
struct ms_supervise_watch {
    long every_ms; /* 1 to 999 */
    int (*look)(void *ctx);
    /* May be null. Called in the command's process, before it becomes the command; 0 or an
     * errno. */
    int (*enter)(void *ctx);
    /* May be null. Called when a signal that asks for an end has reached the command, ours or the
     * terminal's; not for a repetition that a launcher sent at once. */
    void (*asked)(void *ctx);
    void *ctx;
};

/* The same, with a watch. Signals of the watch go to all processes of the command that are in its
 * process group. When the command has ended, all processes that it has left are killed, also those
 * in other groups and sessions. */
int ms_supervise_watched(char *const *argv, char *const *environment,
                         const struct ms_supervise_watch *watch, int *error);

/* Ends this process as the command ended: returns the exit status to use, or does not return if a
 * signal must end it. */
int ms_end_alike(int wait_status);

#endif
