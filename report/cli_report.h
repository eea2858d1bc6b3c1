/* `memshim report`, and what `memshim run` does at its end. For the command line: errors go to
 * stderr. */
#ifndef MEMSHIM_REPORT_CLI_REPORT_H
#define MEMSHIM_REPORT_CLI_REPORT_H

/* argv[0] is the command's own name. Returns the exit status: 0, 1 where a trace could not be read
 * or a report not be written, 2 for a wrong call. */
int ms_cli_report(int argc, char **argv);

/* Writes, into every process's folder of a run, the reports that are missing or older than what the
 * trace holds (a process that still runs gets none), and into `run_dir` one of all processes
 * together. 0, or -1 where one of them could not be made; the others are. */
int ms_report_complete(const char *run_dir);

#endif
