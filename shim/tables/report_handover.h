/* SPDX-License-Identifier: Apache-2.0 */
/* What the process that ended and the process that makes its report agree on. */
#ifndef MEMSHIM_SHIM_TABLES_REPORT_HANDOVER_H
#define MEMSHIM_SHIM_TABLES_REPORT_HANDOVER_H

/* The library starts `memshim finish VERSION FOLDER` with its own version and the trace's folder.
 * The command finds a pipe at this descriptor. It writes why there is no report (nothing if there
 * is one), and then a null byte. If it ends without the null byte, it has failed. */
#define MS_REPORT_ANSWER_FD 3

/* In the trace's folder: warnings of the process that makes the report. */
#define MS_REPORT_LOG "report.log"

/* In the run's folder: the lock of the process that makes reports on one host; the host's name is
 * part of the file's name. */
#define MS_REPORT_LOCK_PREFIX ".report-"
#define MS_REPORT_LOCK_SUFFIX ".lock"

/* `memshim run` sets this to its own "PID HOST": it makes the reports when all processes have
 * ended. The name does not begin with MEMSHIM_, because it is no option. */
#define MS_SUPERVISOR "_MEMSHIM_SUPERVISOR"

#endif
