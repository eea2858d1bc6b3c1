/* The commands of the memshim executable. Each takes what follows the executable's name (argv[0] is
 * the command) and returns the exit status: 0, 1 for what failed, 2 for a wrong call. */
#ifndef MEMSHIM_SHIM_CLI_H
#define MEMSHIM_SHIM_CLI_H

#define MS_CLI_WRONG_CALL 2

/* Runs a command under the shim, and completes the reports when it has ended. Returns the command's
 * exit status; where a signal ended it, this process ends by the same one. */
int ms_cli_run(int argc, char **argv);

/* Runs a recorded run through the pool on the dry device. 1 also where the run does not complete.
 */
int ms_cli_replay(int argc, char **argv);

/* Shows how running processes stand. 1 where none is found, or one could not be read. */
int ms_cli_top(int argc, char **argv);

/* Says what this machine can do for memshim. 1 where memshim could not serve at all. */
int ms_cli_doctor(int argc, char **argv);

#endif
