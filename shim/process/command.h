/* SPDX-License-Identifier: Apache-2.0 */
/* The memshim command that belongs to this library, to be started as a process of its own. Nothing
 * here uses the program's heap, because it also runs while the process ends. */
#ifndef MEMSHIM_SHIM_PROCESS_COMMAND_H
#define MEMSHIM_SHIM_PROCESS_COMMAND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Too large for a small thread's stack. */
struct ms_command {
    char library[PATH_MAX];
    char path[PATH_MAX + 32]; /* of the command */
    char preload[4 * PATH_MAX];
    char entry[PATH_MAX]; /* an entry of LD_PRELOAD, and the file that it leads to */
    char target[PATH_MAX];
    char **environment; /* the command's own */
    size_t environment_bytes;
};

/* Finds the executable: beside the library in a build folder, in bin/ if installed. False: there is
 * none that can be run. */
bool ms_command_find(struct ms_command *command);

/* Makes command->environment: this process's without the library in LD_PRELOAD, and with a mark, so
 * that a library that is preloaded nevertheless does nothing. apart: also without whatever else is
 * loaded into every program (LD_PRELOAD, LD_AUDIT). LD_LIBRARY_PATH stays, because it may be the
 * only way to libdw, which names native functions. False: no memory. Free it with
 * ms_command_free. */
bool ms_command_environment(struct ms_command *command, bool apart);
void ms_command_free(struct ms_command *command);

/* How clone() makes the processes that become the command: as vfork does, so that nothing of a
 * large program is copied. The sanitizers keep a thread's locks, or which bytes of a stack are in
 * use, in the program's own memory, and would go on with what the child left there. Under them the
 * child gets a copy. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#    define MS_COMMAND_CLONE CLONE_VFORK
#else
#    define MS_COMMAND_CLONE (CLONE_VM | CLONE_VFORK)
#endif

/* Ends such a process by a system call: _exit() may be another library's, which changes memory that
 * both processes share, or the exit code. */
_Noreturn void ms_command_leave(int code);

#endif
