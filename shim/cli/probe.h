/* Whether a device can reach memory that lies on the host. */
#ifndef MEMSHIM_SHIM_CLI_PROBE_H
#define MEMSHIM_SHIM_CLI_PROBE_H

/* memshim probe-host UUID (32 hexadecimal digits): makes a context on that device and a chunk of
 * host memory, has the device write, copy and read there, and looks at the bytes. For memshim's own
 * use, in a process that may crash: kernels fault on such memory on some machines whose driver
 * offers it. Says nothing. Exit statuses below; any other way to end proves nothing good. */
int ms_cli_probe_host(int argc, char **argv);

#define MS_PROBE_REACHED     0 /* every byte was right */
#define MS_PROBE_NOT_REACHED 3 /* the driver refused it, or a byte was wrong */
#define MS_PROBE_UNKNOWN     4 /* there was no device, or no memory, to try it on */

#endif
