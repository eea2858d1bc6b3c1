/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps NCCL from registering memory wrongly. */
#include "shim/frameworks/nccl.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim/driver/caller.h"
#include "shim/driver/next_dlsym.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"

/* As NCCL_VERSION_CODE: 10,000 x major + 100 x minor + patch. */
enum { FIRST_WRONG = 22403, LAST_WRONG = 23102 };

typedef int (*get_version_t)(int *);

/* 0: unknown. */
static int version_in(const char *file)
{
    int version = 0;
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
        get_version_t ask = (get_version_t)ms_real_dlsym(library, "ncclGetVersion");
        if (ask == NULL || ask(&version) != 0) {
            version = 0;
        }
        (void)dlclose(library);
    }
    return version;
}

bool ms_nccl_takes_one_chunk(const void *code)
{
    Dl_info around;
    const char *file = "libnccl.so.2";
    if (code != NULL && dladdr(code, &around) != 0) {
        file = around.dli_fname;
    }
    const int version = version_in(file);
    return version == 0 || (version >= FIRST_WRONG && version <= LAST_WRONG);
}

char *ms_nccl_graph_register(const void *caller)
{
    static char off[] = "0";
    if (ms_process_inert() || !ms_library_facts_at(caller).is_nccl ||
        !ms_nccl_takes_one_chunk(caller)) {
        return NULL;
    }
    static const char text[] = "NCCL is told " MS_NCCL_GRAPH_VARIABLE
                               "=0, because with expandable segments this version may hang in CUDA "
                               "graphs; set the variable, or use a later NCCL, to change that";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said)) {
        ms_session_note(text);
        ms_log(MS_LOG_WARN, "%s", text);
    }
    return off;
}
