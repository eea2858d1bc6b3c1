/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that memshim keeps open in the program's process. The program may close all that it
 * does not know, and then open its own under the same number. So memshim notes which file it is,
 * and looks before it reads, writes or closes. */
#ifndef MEMSHIM_SHIM_SHARING_DESCRIPTOR_H
#define MEMSHIM_SHIM_SHARING_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct ms_descriptor {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};

/* An open descriptor of the program's. */
struct ms_descriptor ms_descriptor_of(int fd);

/* Takes an open descriptor over, and moves it to a high number, out of the way of programs that
 * count on low ones. fd < 0: the result is none. */
struct ms_descriptor ms_descriptor_keep(int fd);

/* False: the program closed it, or it is none. */
bool ms_descriptor_is_ours(const struct ms_descriptor *descriptor);

/* Closes it if it is still ours. Safe in a forked child. */
void ms_descriptor_close(const struct ms_descriptor *descriptor);

#endif
