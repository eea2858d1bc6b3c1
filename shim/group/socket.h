/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets by which processes find each other: <folder>/memshim-socket-<name>. Names in a file
 * system also work between network namespaces, where abstract ones do not (unix(7)). */
#ifndef MEMSHIM_SHIM_GROUP_SOCKET_H
#define MEMSHIM_SHIM_GROUP_SOCKET_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The address of that name; 0: the name is too long. */
socklen_t ms_socket_address(const char *folder, const char *name, struct sockaddr_un *address);

#define MS_SOCKET_KIND (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK)

/* A socket that listens there, for this user alone; -1: failed. */
int ms_socket_listen(const char *folder, const char *name, int backlog);

void ms_socket_remove(const char *folder, const char *name);

/* Removes this user's sockets on which nobody listens any more, because their process was killed.
 * Keeps those younger than a minute, since their process may be about to listen. Returns how
 * many. */
uint32_t ms_socket_sweep(const char *folder);

#endif
