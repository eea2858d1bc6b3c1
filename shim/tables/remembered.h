/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of probes (shim/process/probe.h), in files of the user's cache folder.
 *
 * The folder is $XDG_CACHE_HOME/memshim if that variable is set, otherwise $HOME/.cache/memshim.
 * XDG_CACHE_HOME or HOME must exist; otherwise nothing is kept. The folder is used only if it
 * belongs to the user and nobody else may write to it. Each answer is a file of its own, whose name
 * contains all that the answer depends on. It is replaced as a whole (rename), so that a reader
 * sees the old or the new one.
 *
 * The library and the memshim command use this. The caller holds no lock of the library. */
#ifndef MEMSHIM_SHIM_TABLES_REMEMBERED_H
#define MEMSHIM_SHIM_TABLES_REMEMBERED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A no is asked again after a day, because its cause may be gone. */
#define MS_REMEMBERED_NO_LASTS_S 86400

#define MS_REMEMBERED_KEY_BYTES 200

struct ms_remembered_answer {
    int code;        /* a row of MS_PROBE_CODES (shim/process/probe.h) */
    int64_t when_ns; /* since 1970 */
};

enum ms_remembered_state {
    MS_REMEMBERED_NOWHERE, /* neither of the two folders exists */
    MS_REMEMBERED_OPEN,
    MS_REMEMBERED_UNUSABLE, /* `trouble` has the reason */
    MS_REMEMBERED_UNSAFE    /* likewise: somebody else could write there */
};

struct ms_remembered {
    int folder; /* -1: not open */
    int lock;   /* -1: not held by this process */
    enum ms_remembered_state state;
    const char *trouble; /* of the folder; null: none */
    char path[PATH_MAX]; /* the folder's */
};

/* Opens the folder; makes it first if `make`. ms_remembered_close releases everything, even after a
 * failure. */
void ms_remembered_open(struct ms_remembered *remembered, char *const *environment, bool make);
void ms_remembered_close(struct ms_remembered *remembered);

/* Turns the key's text into a file name: whatever is no letter, digit, dot or dash becomes an
 * underscore. */
void ms_remembered_key(char *key);

/* Waits, wait_ms at most, until no other process is finding out the same. False: it waited in vain,
 * or the file system has no locks. */
bool ms_remembered_lock(struct ms_remembered *remembered, const char *key, int wait_ms);

/* False: there is no answer. *trouble: why an existing one cannot be used (damaged, a link,
 * somebody else's), otherwise null. */
bool ms_remembered_read(const struct ms_remembered *remembered, const char *key,
                        struct ms_remembered_answer *out, const char **trouble);

/* False: it could not be written; the previous answer stays then. */
bool ms_remembered_write(const struct ms_remembered *remembered, const char *key,
                         const struct ms_remembered_answer *answer);

/* Whether this is the file name of an answer. */
bool ms_remembered_is_key(const char *name);

/* ms_remembered_forget removes one answer; ms_remembered_forget_all removes all of them, with their
 * locks, and returns how many there were. */
void ms_remembered_forget(const struct ms_remembered *remembered, const char *key);
unsigned ms_remembered_forget_all(const struct ms_remembered *remembered);

#endif
