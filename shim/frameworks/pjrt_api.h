/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of XLA's plugin interface (xla/pjrt/c/pjrt_c_api.h) that are used here, under names of
 * our own. Major version 0 only ever appends: members keep their places, and a struct's first
 * member, its size, says how many there are. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_PJRT_API_H
#define MEMSHIM_SHIM_FRAMEWORKS_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PJRT_MAJOR 0

enum pjrt_type { PJRT_STRING, PJRT_INT64, PJRT_INT64_LIST, PJRT_FLOAT, PJRT_BOOL };

/* PJRT_NamedValue: an option of a client. */
struct pjrt_option {
    size_t struct_bytes;
    void *extension;
    const char *name; /* name_bytes long */
    size_t name_bytes;
    int32_t type; /* enum pjrt_type */
    union {
        const char *string; /* count bytes long */
        int64_t int64;
        bool boolean;
    } value;
    size_t count;
};

/* PJRT_Client_Create_Args: the members up to the last one that is used here. */
struct pjrt_client_create {
    size_t struct_bytes;
    void *extension;
    const struct pjrt_option *options;
    size_t option_count;
};

struct pjrt_error;

/* PJRT_Error_Destroy_Args. */
struct pjrt_error_destroy {
    size_t struct_bytes;
    void *extension;
    struct pjrt_error *error;
};

/* PJRT_Api up to PJRT_Client_Create. Null means success, for every call that returns an error. */
struct pjrt_api {
    size_t struct_bytes;
    void *extension;
    struct {
        size_t struct_bytes;
        void *extension;
        int major, minor;
    } version;
    void (*error_destroy)(struct pjrt_error_destroy *);
    void (*before_client_create[9])(void); /* functions for errors, the plugin, events */
    struct pjrt_error *(*client_create)(struct pjrt_client_create *);
};

_Static_assert(sizeof(struct pjrt_option) == 56, "PJRT_NamedValue_STRUCT_SIZE");
_Static_assert(offsetof(struct pjrt_api, error_destroy) == 40, "after PJRT_Api_Version");
_Static_assert(offsetof(struct pjrt_api, client_create) == 120, "the eleventh function");

/* A plugin's entry. */
typedef const struct pjrt_api *(*pjrt_get_t)(void);

#endif
