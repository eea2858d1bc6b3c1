/* SPDX-License-Identifier: Apache-2.0 */
/* The report at the end of this process is another process's work: `memshim finish` reads the trace
 * and writes the files beside it. A crash of the reader is then no crash of the program, and none
 * of its code is in the library. */
#ifndef MEMSHIM_SHIM_PROCESS_REPORT_PROCESS_H
#define MEMSHIM_SHIM_PROCESS_REPORT_PROCESS_H

#include <stddef.h>
#include <stdint.h>

enum ms_reported {
    MS_REPORTED,       /* the files stand beside the trace */
    MS_REPORT_GOES_ON, /* not within the wait: the process goes on without this one */
    MS_REPORT_FAILED,  /* `why` says it */
    MS_REPORT_LATER    /* this process was started by `memshim run`, which does it at the end */
};

/* Where the command is; to be called while the program still runs, once. */
void ms_report_process_prepare(void);

/* The pid of the `memshim run` above this process, as its environment has it; 0: none. */
int32_t ms_report_process_supervisor(void);

/* Starts the process for the closed trace in `dir` (an absolute path), and waits for its files,
 * wait_ns at most. Takes nothing from the heap, and little stack. The program's children, its
 * SIGCHLD, its descriptors and errno are as they were. */
enum ms_reported ms_report_process(const char *dir, uint64_t wait_ns, char *why, size_t why_bytes);

#endif
