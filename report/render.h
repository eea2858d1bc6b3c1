/* The reader half's door: reports from a trace, for the CLI and for the shim at exit. */
#ifndef MEMSHIM_REPORT_RENDER_H
#define MEMSHIM_REPORT_RENDER_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the trace in `dir` and writes report.txt, report.json and timeline.json beside it. Trusts
 * no byte of the trace. 0, or -1 and a sentence in `why` that names the file. May be called in the
 * traced process itself, also while its trace is open: takes no memory from its heap, and leaves a
 * trace that would take longer than a second to the memshim command (-1, and `why` says so). Best
 * called after ms_trace_close, whose exit status it then knows. */
int ms_report_write(const char *dir, char *why, size_t why_bytes);

#endif
