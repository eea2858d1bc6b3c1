/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim asks the driver in a throw-away process (shim/tables/probe_codes.h has the exit
 * statuses). These processes print nothing, and end after 10 s at most. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_PROBE_H
#define MEMSHIM_SHIM_CLI_DOCTOR_PROBE_H

/* Can the device of this UUID (32 hexadecimal digits) reach memory on the host? Makes a context
 * there and a chunk of host memory, has the device write, copy and read, and checks the bytes: on
 * some machines whose driver offers such memory, kernels fault on it. Returns the exit status. Call
 * it in a process that is thrown away afterwards (fork). `memshim probe-host UUID` ends with that
 * status.
 *
 * `memshim probe-mapping` asks whether every device has virtual memory management. It is used
 * before the program has initialized CUDA, which must not happen here, because the program may want
 * to fork. */
int ms_probe_host(const char *uuid_text);

#endif
