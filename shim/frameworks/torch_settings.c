/* SPDX-License-Identifier: Apache-2.0 */
/* Adds memshim's settings to PyTorch's. PyTorch reads its settings through getenv, called from
 * libc10 (2.15) or libc10_cuda (2.6). These callers get the user's settings with ours added. All
 * other callers, and every child process, get the environment as it is. Settings that the program
 * makes in os.environ before it loads PyTorch are included.
 *
 * Python itself reads one setting, from a copy of the environment that it makes at its start. So
 * that one must be in the environment before. */
#include "shim/frameworks/torch_settings.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/caller.h"
#include "shim/driver/next_dlsym.h"
#include "shim/driver/torch_library.h"
#include "shim/frameworks/nccl.h"
#include "shim/frameworks/nvtx.h"
#include "shim/frameworks/tensorflow.h"
#include "shim/policy/proxies.h"
#include "shim/process/log.h"
#include "shim/process/probe.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/tables/identity.h"
#include "shim/tables/remembered.h"
#include "shim/tables/torch_conf.h"

#define SEGMENTS_OFF          "expandable_segments:False"
#define TORCH_SHARES_SEGMENTS "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"

typedef char *(*getenv_t)(const char *);

static _Atomic(getenv_t) next;

/* The strings that were returned: a caller of getenv may keep the pointer. */
struct setting_answer {
    struct setting_answer *next;
    char text[];
};

static struct setting_answer *answers MS_GUARDED_BY(*MS_LOCK(ANSWERS));

/* Where no function can be looked up. */
static char *plain_getenv(const char *name)
{
    return (char *)ms_environment(environ, name);
}

static char *next_getenv(const char *name)
{
    getenv_t found = atomic_load_explicit(&next, memory_order_relaxed);
    if (found == NULL) {
        found = (getenv_t)ms_real_dlsym(RTLD_NEXT, "getenv");
        found = found != NULL ? found : plain_getenv;
        atomic_store_explicit(&next, found, memory_order_relaxed);
    }
    return found(name);
}

/* Equal texts give the same string. Null: no host memory. */
static char *keep(const char *theirs, const char *ours)
{
    size_t bytes = strlen(theirs) + strlen(ours) + 2;
    struct setting_answer *fresh = malloc(sizeof(*fresh) + bytes);
    if (fresh == NULL) {
        return NULL;
    }
    (void)snprintf(fresh->text, bytes, "%s%s%s", theirs, theirs[0] != '\0' ? "," : "", ours);
    ms_lock_acquire(MS_LOCK(ANSWERS));
    struct setting_answer *known = answers;
    while (known != NULL && strcmp(known->text, fresh->text) != 0) {
        known = known->next;
    }
    if (known == NULL) {
        fresh->next = answers;
        answers = fresh;
    }
    ms_lock_release(MS_LOCK(ANSWERS));
    if (known != NULL) {
        free(fresh);
    }
    return known != NULL ? known->text : fresh->text;
}

/* With expandable segments, PyTorch gives up this registration of its memory with NCCL. */
static bool registers_with_nccl(void)
{
    return ms_torch_switch(next_getenv("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")) ||
           ms_torch_switch(next_getenv("NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"));
}

/* With expandable segments, PyTorch then refuses to share a tensor with another process. */
static bool shares_no_segments(void)
{
    const char *said = next_getenv(TORCH_SHARES_SEGMENTS);
    return said != NULL && strcmp(said, "0") == 0;
}

/* Whether the user set the variable that ms_nccl_graph_register() would answer. */
static bool graphs_register(void)
{
    const char *said = next_getenv(MS_NCCL_GRAPH_VARIABLE);
    return said != NULL && strcmp(said, "0") != 0 && ms_nccl_takes_one_chunk(NULL);
}

/* PyTorch would no longer ask a library that stands before the runtime's cudaMalloc, such as
 * torch_memory_saver's preload, which lets sleep what it handed out. */
static bool malloc_is_replaced(void)
{
    const void *found = ms_real_dlsym(RTLD_DEFAULT, "cudaMalloc");
    return found != NULL && ms_library_at(found) != MS_LIBRARY_RUNTIME;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (const char *at = text ? text : ""; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 1099511628211u; /* FNV-1a */
    }
    return hash;
}

/* Expandable segments fail in PyTorch on a device that cannot map memory (a virtual one). The
 * answer is remembered by machine, by the kernel driver, whose version this file contains, by the
 * visible devices, and by memshim's version. */
static bool devices_can_map(void)
{
    static const char path[] = "/proc/driver/nvidia/version";
    char line[256] = "";
    char host[64] = "";
    char key[MS_REMEMBERED_KEY_BYTES];
    FILE *file = fopen(path, "re");
    bool known = file != NULL && fgets(line, sizeof(line), file) != NULL &&
                 gethostname(host, sizeof(host) - 1) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    uint64_t hash = hash_text(14695981039346656037u, line);
    hash = hash_text(hash, next_getenv("CUDA_VISIBLE_DEVICES"));
    (void)snprintf(key, sizeof(key), "mapping-%s-%016llx-%s", host, (unsigned long long)hash,
                   MEMSHIM_VERSION);
    ms_remembered_key(key);
    return ms_probe("probe-mapping", NULL, known ? key : NULL).answer != MS_PROBE_NO;
}

/* Found out once, because PyTorch reads its settings several times. */
static bool devices_could_map(void)
{
    static int answer; /* guarded by asking: 0 not asked, 1 all can, 2 not all can */
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(SETTINGS));
    if (answer == 0) {
        answer = devices_can_map() ? 1 : 2;
    }
    bool can = answer == 1;
    ms_lock_release(MS_LOCK(SETTINGS));
    ms_cancel_let(cancellation);
    return can;
}

static void say_once(enum ms_log_level level, const char *what, const char *how)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char text[256];
    if (!atomic_flag_test_and_set(&said)) {
        (void)snprintf(text, sizeof(text), "PyTorch's setting %s %s", what, how);
        if (level == MS_LOG_WARN) {
            ms_log_in_run(text);
        } else {
            ms_session_note(text);
            ms_log(level, "%s", text);
        }
    }
}

/* memshim, not the user, switched PyTorch's expandable segments on. */
static atomic_bool expandable;

/* The settings with which they are off again; null: they are not memshim's. */
static _Atomic(const char *) without_segments;

bool ms_torch_settings_expandable(void)
{
    return atomic_load(&expandable);
}

const char *ms_torch_settings_without_segments(void)
{
    return atomic_load(&without_segments);
}

void ms_torch_settings_made(const char *settings)
{
    if (atomic_load(&without_segments) != NULL) {
        const bool named = ms_torch_conf_value(settings, "expandable_segments") != NULL;
        atomic_store(&without_segments, named ? NULL : keep(settings, SEGMENTS_OFF));
    }
}

/* Why they are left off; null: no reason. */
static const char *why_off(void)
{
    if (registers_with_nccl()) {
        return "was left off: PyTorch would give up the registration with NCCL that is switched on";
    }
    if (shares_no_segments()) {
        return "was left off: with " TORCH_SHARES_SEGMENTS "=0, PyTorch would share no tensor "
               "with another process";
    }
    if (malloc_is_replaced()) {
        return "was left off: another library stands before cudaMalloc, and PyTorch would no "
               "longer ask it";
    }
    if (!devices_could_map()) {
        return "was left off: not every device here can map memory";
    }
    return graphs_register() ? "was left off: " MS_NCCL_GRAPH_VARIABLE
                               " is set, and this NCCL registers one chunk of several, with which "
                               "CUDA graphs hang"
                             : NULL;
}

static char *answer_for(int row, char *value)
{
    const struct ms_options *options = ms_options();
    const char *ours = ms_torch_conf_added(options->torch);
    const char *values[MS_TORCH_CONF_NAMES];
    bool any = false;
    for (int i = 0; i < MS_TORCH_CONF_NAMES; i++) {
        values[i] = i == row ? value : next_getenv(ms_torch_conf_names[i]);
        any = any || values[i] != NULL;
    }
    if (!options->pool || !ms_torch_conf_open(options->torch, values)) {
        return value;
    }
    const char *why = options->torch == MS_TORCH_NATIVE ? why_off() : NULL;
    if (why != NULL) {
        say_once(MS_LOG_WARN, ours, why);
        return value;
    }
    if (value == NULL && any) {
        return NULL; /* the user set another name, which PyTorch reads, too */
    }
    char *merged = keep(value != NULL ? value : "", ours);
    if (merged == NULL) {
        return value;
    }
    if (options->torch == MS_TORCH_NATIVE) {
        if (!atomic_exchange(&expandable, true)) {
            atomic_store(&without_segments, keep(merged, SEGMENTS_OFF));
        }
        ms_proxies_replace_malloc();
    }
    (void)ms_torch_library_find(); /* for its version: in tensor mode it reports nothing */
    say_once(MS_LOG_INFO, ours,
             "was switched on by memshim; PYTORCH_ALLOC_CONF takes precedence if it names it");
    return merged;
}

__attribute__((visibility("default"))) char *getenv(const char *name)
{
    char *value = next_getenv(name);
    if (value == NULL && strcmp(name, MS_NVTX_VARIABLE) == 0) {
        return ms_nvtx_path(__builtin_return_address(0));
    }
    if (value == NULL && strcmp(name, MS_TENSORFLOW_VARIABLE) == 0) {
        return ms_tensorflow_setting(__builtin_return_address(0));
    }
    if (value == NULL && strcmp(name, MS_NCCL_GRAPH_VARIABLE) == 0 && atomic_load(&expandable)) {
        return ms_nccl_graph_register(__builtin_return_address(0));
    }
    if (strncmp(name, "PYTORCH_", strlen("PYTORCH_")) != 0) {
        return value;
    }
    int row = ms_torch_conf_of(name);
    if (row < 0 || ms_process_inert()) {
        return value;
    }
    enum ms_library caller = ms_library_at(__builtin_return_address(0));
    return caller == MS_LIBRARY_TORCH || caller == MS_LIBRARY_C10_CUDA ? answer_for(row, value)
                                                                       : value;
}

char *ms_torch_settings_variable(void)
{
    const char *mode = ms_environment(environ, "MEMSHIM_TORCH");
    bool tensor = mode != NULL && strcmp(mode, "tensor") == 0;
    static char variable[] = "TORCH_DIST_USE_NCCL2=0";
    return tensor && ms_real_dlsym(RTLD_DEFAULT, "Py_BytesMain") != NULL ? variable : NULL;
}
