/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim asks the driver in a throw-away process (shim/tables/probe_codes.h has the exit
 * statuses). They say nothing, and end after 10 s at most. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_PROBE_H
#define MEMSHIM_SHIM_CLI_DOCTOR_PROBE_H

/* Can the device of this UUID (32 hexadecimal digits) reach memory on the host? Makes a context
 * there and a chunk of host memory, has the device write, copy and read, and looks at the bytes:
 * kernels fault on such memory on some machines whose driver offers it. The exit status; for a
 * process that is thrown away afterwards (fork). `memshim probe-host UUID` ends with it.
 *
 * `memshim probe-mapping` asks whether every device has virtual memory management: before the
 * program has initialized CUDA, which must stay so, since it may want to fork. */
int ms_probe_host(const char *uuid_text);

#endif
