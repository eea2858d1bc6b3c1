/* SPDX-License-Identifier: Apache-2.0 */
/* Another process makes the report at the end of this one: `memshim finish` reads the trace and
 * writes the files beside it. So a crash of the reader is no crash of the program, and the library
 * contains none of its code. */
#ifndef MEMSHIM_SHIM_PROCESS_REPORT_PROCESS_H
#define MEMSHIM_SHIM_PROCESS_REPORT_PROCESS_H

#include <stddef.h>
#include <stdint.h>

enum ms_reported {
    MS_REPORTED,       /* the files exist beside the trace */
    MS_REPORT_GOES_ON, /* not finished within the wait; it goes on by itself */
    MS_REPORT_FAILED,  /* `why` has the reason */
    MS_REPORT_LATER    /* `memshim run` started this process, and makes the report at the end */
};

/* Finds the command. To be called once, while the program still runs. */
void ms_report_process_prepare(void);

/* The pid of the `memshim run` above this process, as its environment has it; 0: none. */
int32_t ms_report_process_supervisor(void);

/* Starts the process for the closed trace in `dir` (an absolute path), and waits for its files,
 * wait_ns at most. Uses no heap and little stack. The program's children, its SIGCHLD, its
 * descriptors and errno are not affected. */
enum ms_reported ms_report_process(const char *dir, uint64_t wait_ns, char *why, size_t why_bytes);

#endif
