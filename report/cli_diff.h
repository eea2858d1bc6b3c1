/* `memshim diff`: two runs, two ranks, or two moments of one. */
#ifndef MEMSHIM_REPORT_CLI_DIFF_H
#define MEMSHIM_REPORT_CLI_DIFF_H

/* argv[0] is the command's own name. Returns the exit status: 0, 1 where a trace could not be read,
 * 2 for a wrong call. Errors go to stderr. */
int ms_cli_diff(int argc, char **argv);

#endif
