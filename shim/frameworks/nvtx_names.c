/* SPDX-License-Identifier: Apache-2.0 */
/* NVTX's domains and registered strings, by handle. */
#include "shim/frameworks/nvtx_names.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/locks/lock.h"
#include "shim/sites/tag_names.h"

#define DOMAINS_MAX 256u /* including the one without a name, at 0 */
#define STRINGS_MAX 65536u

/* Names are complete before their handles are given out. Handles are indices, so that an invalid
 * one does no harm. */
static char domains[DOMAINS_MAX][MS_NVTX_DOMAIN_BYTES]; /* written under lock */
static _Atomic uint32_t domain_count = 1;
static char *strings[STRINGS_MAX]; /* registered strings by handle - 1; written under lock */
static _Atomic uint32_t string_count;

/* --- Texts -------------------------------------------------------------------------------------
 */

void ms_nvtx_narrow(const wchar_t *wide, char *text, size_t room_bytes)
{
    size_t used = 0;
    for (; *wide != L'\0'; wide++) {
        uint32_t c = (uint32_t)*wide;
        c = c > 0x10ffffu || (c >= 0xd800u && c < 0xe000u) ? 0xfffdu : c;
        size_t bytes = c < 0x80u ? 1 : c < 0x800u ? 2 : c < 0x10000u ? 3 : 4;
        if (used + bytes >= room_bytes) {
            break;
        }
        static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t i = bytes - 1; i > 0; i--, c >>= 6) {
            text[used + i] = (char)(0x80u | (c & 0x3fu));
        }
        text[used] = (char)(lead[bytes] | c);
        used += bytes;
    }
    text[used] = '\0';
}

/* --- Domains and registered strings ------------------------------------------------------------
 */

uint16_t ms_nvtx_domain(nvtx_domain_t domain)
{
    uintptr_t index = (uintptr_t)domain;
    return index < atomic_load_explicit(&domain_count, memory_order_acquire) ? (uint16_t)index : 0;
}

nvtx_domain_t ms_nvtx_domain_create_a(const char *name)
{
    char text[MS_NVTX_DOMAIN_BYTES];
    if (name == NULL) {
        return NULL;
    }
    (void)snprintf(text, sizeof(text), "%s", name);
    ms_lock_acquire(MS_LOCK(NVTX));
    uint32_t count = atomic_load_explicit(&domain_count, memory_order_relaxed);
    uint32_t index = 1;
    while (index < count && strcmp(domains[index], text) != 0) {
        index++;
    }
    if (index == count && count < DOMAINS_MAX) {
        memcpy(domains[index], text, sizeof(text));
        atomic_store_explicit(&domain_count, count + 1, memory_order_release);
    }
    ms_lock_release(MS_LOCK(NVTX));
    return (nvtx_domain_t)(uintptr_t)(index < DOMAINS_MAX ? index : 0);
}

nvtx_domain_t ms_nvtx_domain_create_w(const wchar_t *name)
{
    char text[MS_NVTX_DOMAIN_BYTES];
    if (name == NULL) {
        return NULL;
    }
    ms_nvtx_narrow(name, text, sizeof(text));
    return ms_nvtx_domain_create_a(text);
}

const char *ms_nvtx_registered(const void *handle)
{
    uintptr_t number = (uintptr_t)handle;
    return number > 0 && number <= atomic_load_explicit(&string_count, memory_order_acquire)
               ? strings[number - 1]
               : NULL;
}

const void *ms_nvtx_register_string_a(nvtx_domain_t domain, const char *text)
{
    (void)domain;
    char *kept = text != NULL ? strndup(text, MS_TAG_NAME_BYTES) : NULL;
    if (kept == NULL) {
        return NULL;
    }
    ms_lock_acquire(MS_LOCK(NVTX));
    uint32_t count = atomic_load_explicit(&string_count, memory_order_relaxed);
    bool room = count < STRINGS_MAX;
    if (room) {
        strings[count] = kept;
        atomic_store_explicit(&string_count, count + 1, memory_order_release);
    }
    ms_lock_release(MS_LOCK(NVTX));
    if (!room) {
        free(kept);
    }
    return (const void *)(uintptr_t)(room ? count + 1 : 0);
}

const void *ms_nvtx_register_string_w(nvtx_domain_t domain, const wchar_t *text)
{
    char narrowed[MS_TAG_NAME_BYTES + 1];
    if (text == NULL) {
        return NULL;
    }
    ms_nvtx_narrow(text, narrowed, sizeof(narrowed));
    return ms_nvtx_register_string_a(domain, narrowed);
}

const char *ms_nvtx_domain_name(uint16_t domain)
{
    return domains[domain];
}
