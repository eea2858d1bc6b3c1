/* SPDX-License-Identifier: Apache-2.0 */
/* Demangles C++ names with the C++ library of the machine. */
#include "report/symbols/demangle.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CXX_LIBRARY "libstdc++.so.6"

typedef char *(*demangler_t)(const char *symbol, char *buffer, size_t *bytes, int *status);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static demangler_t demangler;

/* Loaded only when needed: a machine may lack it, and most reports do not need it. */
static void find_demangler(void)
{
    void *library = dlopen(CXX_LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    if (library) {
        *(void **)&demangler = dlsym(library, "__cxa_demangle");
    }
}

void ms_demangle_prepare(void)
{
    pthread_once(&once, find_demangler);
}

static void copy(char *out, size_t room, const char *name)
{
    const size_t bytes = strlen(name);

    if (bytes < room) {
        memcpy(out, name, bytes + 1);
        return;
    }
    memcpy(out, name, room - sizeof("..."));
    memcpy(out + room - sizeof("..."), "...", sizeof("..."));
}

void ms_demangle(const char *symbol, char *out, size_t room)
{
    char *name = NULL;
    int status = 0;

    if (strncmp(symbol, "_Z", 2) == 0 && strlen(symbol) < MS_FUNCTION_NAME_BYTES - 1) {
        ms_demangle_prepare();
        name = demangler ? demangler(symbol, NULL, NULL, &status) : NULL;
    }
    copy(out, room, name ? name : symbol);
    free(name);
}
