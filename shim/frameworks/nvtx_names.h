/* SPDX-License-Identifier: Apache-2.0 */
/* Names that NVTX registers once: domains and strings. A handle is an index, so that an invalid one
 * does no harm; a name lives as long as the process. Thread-safe; functions that create take the
 * lock NVTX, the others none. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NVTX_NAMES_H
#define MEMSHIM_SHIM_FRAMEWORKS_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "shim/frameworks/nvtx_api.h"

/* Of a domain's name, including its zero byte; longer names are cut. */
#define MS_NVTX_DOMAIN_BYTES 64u

/* Converts UTF-32, as wchar_t is here, to UTF-8: as many whole characters as there is room for, and
 * a zero byte. */
void ms_nvtx_narrow(const wchar_t *wide, char *text, size_t room_bytes);

/* Equal names give one domain. Without room for another: the domain without a name. */
nvtx_domain_t ms_nvtx_domain_create_a(const char *name);
nvtx_domain_t ms_nvtx_domain_create_w(const wchar_t *name);

/* The number of a domain; 0, which has no name, for an invalid handle. */
uint16_t ms_nvtx_domain(nvtx_domain_t domain);

/* The name of the domain with that number; empty for 0. */
const char *ms_nvtx_domain_name(uint16_t domain);

/* A handle to a copy of the text, for all domains. Null if there is no room: a range with it has no
 * name. */
const void *ms_nvtx_register_string_a(nvtx_domain_t domain, const char *text);
const void *ms_nvtx_register_string_w(nvtx_domain_t domain, const wchar_t *text);

/* The text of a handle; null for an invalid one. */
const char *ms_nvtx_registered(const void *handle);

#endif
