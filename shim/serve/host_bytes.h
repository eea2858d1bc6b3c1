/* How much memory the host has left for this process. */
#ifndef MEMSHIM_SHIM_SERVE_HOST_BYTES_H
#define MEMSHIM_SHIM_SERVE_HOST_BYTES_H

#include <stdint.h>

/* What can be had without swapping: the kernel's MemAvailable, less where a control group (v1 or
 * v2) leaves less. `root` stands before the paths of /proc and /sys ("" but in tests). 0 where
 * nothing could be read. */
uint64_t ms_host_available_bytes(const char *root);

/* What may be taken of so many: a quarter, but 2 GiB stay. */
uint64_t ms_host_share_bytes(uint64_t available_bytes);

#endif
