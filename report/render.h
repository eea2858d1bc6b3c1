/* The reader half's door: reports from a trace, for the CLI and for the shim at exit. */
#ifndef MEMSHIM_REPORT_RENDER_H
#define MEMSHIM_REPORT_RENDER_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the trace in `dir` and writes report.txt, report.json and timeline.json beside it. Trusts
 * no byte of the trace. 0, or -1 and a sentence in `why` that names the file. May be called in the
 * traced process itself, whose trace stays open. */
int ms_report_write(const char *dir, char *why, size_t why_bytes);

#endif
