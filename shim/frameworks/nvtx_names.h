/* SPDX-License-Identifier: Apache-2.0 */
/* What NVTX names once: domains and registered strings. A handle is an index, so that a bad one
 * leads nowhere; a name stays for as long as the process. Any thread may call any of these; those
 * that create take the lock NVTX, the others none. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NVTX_NAMES_H
#define MEMSHIM_SHIM_FRAMEWORKS_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "shim/frameworks/nvtx_api.h"

#define MS_NVTX_DOMAIN_BYTES 64u /* of a domain's name, its zero byte included; cut beyond */

/* UTF-32, as wchar_t is here, to UTF-8, whole characters as far as there is room. Ended by a zero
 * byte. */
void ms_nvtx_narrow(const wchar_t *wide, char *text, size_t room_bytes);

/* The same name is the same domain. Without room for another: the domain without a name. */
nvtx_domain_t ms_nvtx_domain_create_a(const char *name);
nvtx_domain_t ms_nvtx_domain_create_w(const wchar_t *name);

/* The number of a domain; 0, which has no name, for a handle that is none. */
uint16_t ms_nvtx_domain(nvtx_domain_t domain);

/* The name of a domain of that number; empty for 0. */
const char *ms_nvtx_domain_name(uint16_t domain);

/* A handle to a copy of the text, the same for every domain. Null where there is no room: a range
 * of it has no name. */
const void *ms_nvtx_register_string_a(nvtx_domain_t domain, const char *text);
const void *ms_nvtx_register_string_w(nvtx_domain_t domain, const wchar_t *text);

/* The text of a handle; null for one that is none. */
const char *ms_nvtx_registered(const void *handle);

#endif
