/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of chunks that PyTorch exports for other processes. These take them from their owner
 * by pidfd_getfd(2), which container engines bar, and Yama for all but the owner's ancestors. The
 * owner's memshim hands them to processes of the same user. Thread-safe. */
#ifndef MEMSHIM_SHIM_SHARING_LENT_H
#define MEMSHIM_SHIM_SHARING_LENT_H

#include <sys/types.h>

/* The owner: from here on other processes may take it, as long as it is open. Starts the thread
 * that answers them. */
void ms_lent_note(int fd);

/* A descriptor of what the process, whose memshim need not be there, lends under that number. -1:
 * it lends nothing there, or does not answer within about a second. The caller owns it. */
int ms_lent_take(pid_t process, int fd);

#endif
