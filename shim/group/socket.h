/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that processes find each other by: <folder>/memshim-socket-<name>. A name in a file
 * system serves where abstract ones do not reach, between network namespaces (unix(7)). */
#ifndef MEMSHIM_SHIM_GROUP_SOCKET_H
#define MEMSHIM_SHIM_GROUP_SOCKET_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The address by that name; 0: it is too long for one. */
socklen_t ms_socket_address(const char *folder, const char *name, struct sockaddr_un *address);

#define MS_SOCKET_KIND (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK)

/* One that listens there, for this user alone; -1: it cannot. */
int ms_socket_listen(const char *folder, const char *name, int backlog);

void ms_socket_remove(const char *folder, const char *name);

/* Removes this user's sockets at which nobody listens any more: their process was killed. One that
 * is younger than a minute stays, since its process may be about to listen. Returns their number.
 */
uint32_t ms_socket_sweep(const char *folder);

#endif
