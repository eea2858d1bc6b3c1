/* SPDX-License-Identifier: Apache-2.0 */
/* What the process that ended and the one that makes its report agree on. */
#ifndef MEMSHIM_SHIM_TABLES_REPORT_HANDOVER_H
#define MEMSHIM_SHIM_TABLES_REPORT_HANDOVER_H

/* The library starts `memshim finish VERSION FOLDER`, its own version and the trace's folder. This
 * is the descriptor at which that finds a pipe: it writes why there is no report, nothing where
 * there is one, and a null byte. One that ends without has failed. */
#define MS_REPORT_ANSWER_FD 3

/* In the trace's folder: what the process that makes the report has to complain of. */
#define MS_REPORT_LOG "report.log"

/* In the run's folder: the lock of who makes reports on a host, whose name stands between them. */
#define MS_REPORT_LOCK_PREFIX ".report-"
#define MS_REPORT_LOCK_SUFFIX ".lock"

/* Set by `memshim run` to "PID HOST", its own: it completes the reports when all have ended. Not
 * named MEMSHIM_...: it is no option. */
#define MS_SUPERVISOR "_MEMSHIM_SUPERVISOR"

#endif
