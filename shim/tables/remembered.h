/* SPDX-License-Identifier: Apache-2.0 */
/* What probes found out (shim/process/probe.h), kept in files of the user's cache folder.
 *
 * The folder is memshim/ in XDG_CACHE_HOME, which must be there, else .cache/memshim in HOME, which
 * must be there; where both are missing nothing is kept. It is used only where it is the user's own
 * and nobody else may write to it. Each answer is a file of its own, named by all that the answer
 * depends on. It is replaced as a whole (rename), so that a reader sees the old one or the new one.
 *
 * The library and the memshim command use this. No lock of the library may be held. */
#ifndef MEMSHIM_SHIM_TABLES_REMEMBERED_H
#define MEMSHIM_SHIM_TABLES_REMEMBERED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A no is asked anew after a day: what stood in the way may be gone. */
#define MS_REMEMBERED_NO_LASTS_S 86400

#define MS_REMEMBERED_KEY_BYTES 200

struct ms_remembered_answer {
    int code;        /* a row of MS_PROBE_CODES (shim/process/probe.h) */
    int64_t when_ns; /* since 1970 */
};

enum ms_remembered_state {
    MS_REMEMBERED_NOWHERE, /* the user has neither of the two folders */
    MS_REMEMBERED_OPEN,
    MS_REMEMBERED_UNUSABLE, /* `trouble` says why */
    MS_REMEMBERED_UNSAFE    /* likewise: somebody else could write there */
};

struct ms_remembered {
    int folder; /* -1 unless it is open */
    int lock;   /* -1 unless this process holds it */
    enum ms_remembered_state state;
    const char *trouble; /* of the folder; null: none */
    char path[PATH_MAX]; /* the folder's */
};

/* Opens the folder; makes it where `make` says so. ms_remembered_close gives everything back, also
 * where this failed. */
void ms_remembered_open(struct ms_remembered *remembered, char *const *environment, bool make);
void ms_remembered_close(struct ms_remembered *remembered);

/* The key's text as a file name: what is no letter, digit, dot or dash becomes an underscore. */
void ms_remembered_key(char *key);

/* Waits at most wait_ms until no other process finds out the same. False: the wait was in vain, or
 * the file system knows no locks. */
bool ms_remembered_lock(struct ms_remembered *remembered, const char *key, int wait_ms);

/* False where there is no answer. *trouble: why one that is there cannot be used (damaged, a link,
 * somebody else's), else null. */
bool ms_remembered_read(const struct ms_remembered *remembered, const char *key,
                        struct ms_remembered_answer *out, const char **trouble);

/* False where it could not be written; what was there before stays then. */
bool ms_remembered_write(const struct ms_remembered *remembered, const char *key,
                         const struct ms_remembered_answer *answer);

/* Whether this is the name of an answer's file. */
bool ms_remembered_is_key(const char *name);

/* Removes one answer; all of them, with the locks beside them: how many there were. */
void ms_remembered_forget(const struct ms_remembered *remembered, const char *key);
unsigned ms_remembered_forget_all(const struct ms_remembered *remembered);

#endif
