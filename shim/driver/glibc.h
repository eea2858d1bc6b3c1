/* SPDX-License-Identifier: Apache-2.0 */
/* Included first in all sources of libmemshim.so. Newer C libraries gave some symbols a new
 * version. This binds them to the version that every glibc since 2.28 has, so that a library built
 * on a new system loads on an old one. The new versions are moves (libpthread and libdl became part
 * of libc in 2.34), not new behaviour. A test reads the versions from the result. */
#ifndef MEMSHIM_SHIM_DRIVER_GLIBC_H
#define MEMSHIM_SHIM_DRIVER_GLIBC_H

#include <features.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#    define MS_FIRST_GLIBC  "GLIBC_2.2.5"
#    define MS_STAT_VERSION 1
#elif defined(__aarch64__)
#    define MS_FIRST_GLIBC  "GLIBC_2.17"
#    define MS_STAT_VERSION 0
#endif

#if defined(__GLIBC__) && defined(MS_FIRST_GLIBC)
#    if __GLIBC_PREREQ(2, 34)
#        define MS_BIND(name) __asm__(".symver " #        name ", " #        name "@" MS_FIRST_GLIBC);
MS_BIND(dladdr)
MS_BIND(dlerror)
MS_BIND(dlopen)
MS_BIND(pthread_create)
MS_BIND(pthread_detach)
MS_BIND(pthread_join)
MS_BIND(pthread_key_create)
MS_BIND(pthread_key_delete)
MS_BIND(pthread_getspecific)
MS_BIND(pthread_setspecific)
MS_BIND(pthread_once)
MS_BIND(pthread_rwlock_rdlock)
MS_BIND(pthread_rwlock_wrlock)
MS_BIND(pthread_rwlock_unlock)
MS_BIND(pthread_sigmask)
MS_BIND(sem_init)
MS_BIND(sem_post)
MS_BIND(sem_wait)
#        undef MS_BIND
#    endif

#    if __GLIBC_PREREQ(2, 33)
/* Until 2.33 these were inline functions that called versioned ones. */
int __xstat(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);
int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags);
#        define stat(path, out)  __xstat(MS_STAT_VERSION, path, out)
#        define lstat(path, out) __lxstat(MS_STAT_VERSION, path, out)
#        define fstat(fd, out)   __fxstat(MS_STAT_VERSION, fd, out)
#        define fstatat(folder, path, out, flags) \
            __fxstatat(MS_STAT_VERSION, folder, path, out, flags)
#    endif
#endif

#endif
