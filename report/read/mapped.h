/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process that lives has a file mapped. */
#ifndef MEMSHIM_REPORT_READ_MAPPED_H
#define MEMSHIM_REPORT_READ_MAPPED_H

#include <stdbool.h>
#include <stdint.h>

/* The process of this id on this machine, and the open file `fd`, by what /proc says. False also
 * where that cannot be read: another user's process. */
bool ms_is_mapped_by(int32_t pid, int fd);

#endif
