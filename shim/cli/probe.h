/* What memshim asks the driver in a throw-away process (shim/probe.h has the exit statuses). They
 * say nothing, and end after 10 s at most. */
#ifndef MEMSHIM_SHIM_CLI_PROBE_H
#define MEMSHIM_SHIM_CLI_PROBE_H

/* memshim probe-host UUID (32 hexadecimal digits): can the device reach memory on the host? Makes a
 * context there and a chunk of host memory, has the device write, copy and read, and looks at the
 * bytes: kernels fault on such memory on some machines whose driver offers it. */
int ms_cli_probe_host(int argc, char **argv);

/* The same from inside a process that is thrown away afterwards (fork): its exit status. */
int ms_probe_host(const char *uuid_text);

/* memshim probe-mapping: has every device virtual memory management? Asked before the program has
 * initialized CUDA, which must stay so: it may want to fork. */
int ms_cli_probe_mapping(int argc, char **argv);

#endif
