/* SPDX-License-Identifier: Apache-2.0 */
/* The memshim command that belongs to this library, to be started as a process of its own. Nothing
 * here takes memory from the program's heap: it is used while the process ends, too. */
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
    char entry[PATH_MAX]; /* of that, and where it leads to */
    char target[PATH_MAX];
    char **environment; /* the command's own */
    size_t environment_bytes;
};

/* Finds the executable: beside the library where it was built, in bin/ where it was installed.
 * False: there is none that can be run. */
bool ms_command_find(struct ms_command *command);

/* Makes command->environment: this process's, without the library in LD_PRELOAD, and marked, so
 * that a library that is preloaded there all the same does nothing. apart: also without anything
 * else that is loaded into every program (LD_PRELOAD, LD_AUDIT). LD_LIBRARY_PATH stays: libdw,
 * which names native functions, may lie there alone. False where there is no memory.
 * ms_command_free gives it back. */
bool ms_command_environment(struct ms_command *command, bool apart);
void ms_command_free(struct ms_command *command);

/* How clone() makes the processes that become the command: as vfork does, for nothing of a large
 * program is copied then. The thread sanitizer keeps a thread's stack and locks in that thread's
 * own memory, and would go on with what the child left there: under it the child has a copy. */
#ifdef __SANITIZE_THREAD__
#    define MS_COMMAND_CLONE CLONE_VFORK
#else
#    define MS_COMMAND_CLONE (CLONE_VM | CLONE_VFORK)
#endif

/* Ends such a process by the kernel's call alone: _exit() may be another library's, which keeps
 * books in the memory that both share, or changes the code. */
_Noreturn void ms_command_leave(int code);

#endif
