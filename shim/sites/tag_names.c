/* SPDX-License-Identifier: Apache-2.0 */
/* A table that only grows: ids are indices, and readers search an index of hashes without the lock.
 * A slot is written last, when its entry is complete. */
#include "shim/sites/tag_names.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/base/containers/pages.h"
#include "allocator/base/locks/lock.h"
#include "report/trace/definitions.h"
#include "shim/process/log.h"
#include "shim/process/session.h"

#define SLOTS       (2u * MS_TAGS_MAX) /* a power of two, at most half full */
#define TEXTS_BYTES ((size_t)65536)    /* host memory for names is taken in pieces of this size */

struct tag_name {
    const char *text;
    uint64_t hash;
    uint32_t outer, bytes, color;
};

static struct tag_name names[MS_TAGS_MAX]; /* by id - 1; written under lock */
static _Atomic uint32_t slots[SLOTS];      /* ids; 0: free */
static uint32_t count MS_GUARDED_BY(*MS_LOCK(TAG_NAMES));
static _Atomic uint32_t defined; /* names with ids up to this are recorded in the trace; written
                                    under lock */
static _Atomic bool closed;      /* no new names: no room here, or in the trace */

/* The place of the next name, and the room there. */
static char *texts MS_GUARDED_BY(*MS_LOCK(TAG_NAMES));
static size_t texts_free_bytes MS_GUARDED_BY(*MS_LOCK(TAG_NAMES));

static uint64_t mix(uint64_t hash)
{
    hash *= 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

static uint64_t hash_of(uint32_t outer, const char *name, size_t bytes)
{
    uint64_t hash = (outer + 1u) * 0x9e3779b97f4a7c15u;
    uint64_t word;
    for (; bytes >= sizeof(word); bytes -= sizeof(word), name += sizeof(word)) {
        memcpy(&word, name, sizeof(word));
        hash = mix(hash ^ word);
    }
    word = 0;
    memcpy(&word, name, bytes);
    return mix(hash ^ word);
}

/* The id, or 0; *slot: its place, or where it would go. */
static uint32_t find(const struct tag_name *wanted, uint32_t *slot)
{
    uint32_t at = (uint32_t)wanted->hash & (SLOTS - 1);
    uint32_t id = atomic_load_explicit(&slots[at], memory_order_acquire);
    while (id != 0) {
        const struct tag_name *known = &names[id - 1];
        if (known->hash == wanted->hash && known->outer == wanted->outer &&
            known->bytes == wanted->bytes &&
            memcmp(known->text, wanted->text, wanted->bytes) == 0) {
            break;
        }
        at = (at + 1) & (SLOTS - 1);
        id = atomic_load_explicit(&slots[at], memory_order_acquire);
    }
    *slot = at;
    return id;
}

static const char *keep(const char *text, size_t bytes) MS_REQUIRES(*MS_LOCK(TAG_NAMES))
{
    if (texts_free_bytes < bytes) {
        int saved_errno = errno;
        void *more = ms_pages_map(TEXTS_BYTES);
        errno = saved_errno;
        if (!more) {
            return NULL;
        }
        texts = more;
        texts_free_bytes = TEXTS_BYTES;
    }
    char *kept = texts;
    memcpy(kept, text, bytes);
    texts += bytes;
    texts_free_bytes -= bytes;
    return kept;
}

/* The id; 0 if there is no room. */
static uint32_t add(const struct tag_name *wanted)
{
    uint32_t slot;
    ms_lock_acquire(MS_LOCK(TAG_NAMES));
    uint32_t id = find(wanted, &slot);
    const char *kept = NULL;
    if (id == 0 && count < MS_TAGS_MAX) {
        kept = keep(wanted->text, wanted->bytes);
    }
    if (kept != NULL) {
        names[count] = *wanted;
        names[count].text = kept;
        id = ++count;
        atomic_store_explicit(&slots[slot], id, memory_order_release);
    }
    ms_lock_release(MS_LOCK(TAG_NAMES));
    return id;
}

/* A longer name is cut before the first character that does not fit. */
static size_t cut(const char *name, size_t bytes)
{
    if (bytes <= MS_TAG_NAME_BYTES) {
        return bytes;
    }
    size_t kept = MS_TAG_NAME_BYTES;
    while (kept > MS_TAG_NAME_BYTES - 4 && ((unsigned char)name[kept] & 0xc0u) == 0x80u) {
        kept--;
    }
    return kept;
}

uint32_t ms_tag_name(uint32_t outer, const char *name, size_t bytes, uint32_t color)
{
    uint32_t slot;
    bytes = cut(name, bytes);
    if (bytes == 0) {
        return outer;
    }
    const struct tag_name wanted = {name, hash_of(outer, name, bytes), outer, (uint32_t)bytes,
                                    color};
    uint32_t id = find(&wanted, &slot);
    if (id == 0 && !atomic_load_explicit(&closed, memory_order_relaxed)) {
        id = add(&wanted);
        if (id == 0) {
            atomic_store_explicit(&closed, true, memory_order_relaxed);
            MS_LOG_ONCE(MS_LOG_WARN,
                        "the program pushed %u different tags (nested ones count separately): from "
                        "here on, a new tag counts as the tag around it",
                        MS_TAGS_MAX);
        }
    }
    return id != 0 ? id : outer;
}

/* The caller holds the lock. */
static bool define(ms_trace_t *trace, uint32_t id)
{
    struct {
        struct ms_tag_definition is;
        char text[MS_TAG_NAME_BYTES];
    } recorded;
    const struct tag_name *name = &names[id - 1];
    recorded.is = (struct ms_tag_definition){id, name->outer, name->color, name->bytes};
    memcpy(recorded.text, name->text, name->bytes);
    return ms_trace_define(trace, MS_DEFINE_TAG, &recorded, sizeof(recorded.is) + name->bytes);
}

void ms_tag_define(uint32_t id)
{
    ms_trace_t *trace = ms_session_trace();
    if (id <= atomic_load_explicit(&defined, memory_order_acquire) || trace == NULL) {
        return;
    }
    ms_lock_acquire(MS_LOCK(TAG_NAMES));
    uint32_t next = atomic_load_explicit(&defined, memory_order_relaxed);
    while (next < count) {
        if (!define(trace, next + 1)) {
            atomic_store_explicit(&closed, true, memory_order_relaxed);
        }
        atomic_store_explicit(&defined, ++next, memory_order_release);
    }
    ms_lock_release(MS_LOCK(TAG_NAMES));
}
