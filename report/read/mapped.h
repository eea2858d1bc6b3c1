/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a running process has a file mapped. */
#ifndef MEMSHIM_REPORT_READ_MAPPED_H
#define MEMSHIM_REPORT_READ_MAPPED_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the process of this id on this machine maps the open file `fd`, according to /proc. False
 * also if that cannot be read: another user's process. */
bool ms_is_mapped_by(int32_t pid, int fd);

#endif
