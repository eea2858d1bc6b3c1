/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin of XLA's as far as memshim knows it: its interface, and a client that tells the options
 * that it was made with. One for CUDA devices that has no cuda_async refuses that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/frameworks/pjrt_api.h"

#define EXPORT __attribute__((visibility("default")))

struct pjrt_error {
    int unused;
};

static struct pjrt_error refused;

static void destroy(struct pjrt_error_destroy *args)
{
    printf("error destroyed %d\n", args->error == &refused);
}

static struct pjrt_error *create(struct pjrt_client_create *args)
{
    bool asynchronous = false;
    for (size_t i = 0; i < args->option_count; i++) {
        const struct pjrt_option *option = &args->options[i];
        printf("%.*s=", (int)option->name_bytes, option->name);
        if (option->type == PJRT_STRING) {
            printf("%.*s ", (int)option->count, option->value.string);
            asynchronous = asynchronous || strncmp(option->value.string, "cuda_async", 10) == 0;
        } else {
            printf("%d ", option->type == PJRT_BOOL ? option->value.boolean : -1);
        }
    }
    puts("");
    return asynchronous && getenv("FAKE_WITHOUT_POOLS") != NULL ? &refused : NULL;
}

/* With one member more than memshim knows of. */
static struct {
    struct pjrt_api known;
    void *more;
} api = {{.struct_bytes = sizeof(api),
          .version = {.minor = 112},
          .error_destroy = destroy,
          .client_create = create},
         &refused};

EXPORT const struct pjrt_api *GetPjrtApi(void);
EXPORT const struct pjrt_api *GetPjrtApi(void)
{
    const char *major = getenv("FAKE_MAJOR");
    api.known.version.major = major != NULL ? atoi(major) : PJRT_MAJOR;
    return &api.known;
}

EXPORT int fake_plugin_is_whole(const struct pjrt_api *seen);
EXPORT int fake_plugin_is_whole(const struct pjrt_api *seen)
{
    return seen->struct_bytes == sizeof(api) && ((void **)(seen + 1))[0] == &refused;
}
