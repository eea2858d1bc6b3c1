/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interpreter of the process, its version and its structures. */
#include "shim/sites/python/python_interpreter.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim/driver/elf.h"
#include "shim/sites/python/python.h"

#define SEARCH_EVERY 256u /* captures of a thread between two searches; a power of two */

/* Threads may search at the same time: none waits for another one, which may hold the loader's
 * lock, and none goes without its frames meanwhile. Each one writes a result of its own; the first
 * that is ready counts. */
struct result {
    struct ms_python_interpreter found;
    char refusal[160];
};
enum { RESULTS_MAX = 16 };
static struct result results[RESULTS_MAX];
static atomic_uint results_taken;
static const struct ms_python_interpreter *_Atomic current;
static const char *_Atomic refusal;
static atomic_ullong watched; /* the loader's count of libraries at the last search */
static _Thread_local uint32_t captures __attribute__((tls_model("initial-exec")));

const char *ms_python_refusal(void)
{
    return atomic_load_explicit(&refusal, memory_order_acquire);
}

static void refuse(struct result *result, uint32_t version, const char *why)
{
    (void)snprintf(result->refusal, sizeof(result->refusal),
                   "Python %u.%u%s: its frames cannot be read here", version >> 8, version & 255,
                   why);
    const char *none = NULL;
    (void)atomic_compare_exchange_strong_explicit(&refusal, &none, result->refusal,
                                                  memory_order_release, memory_order_relaxed);
}

static uint32_t number(const char **text)
{
    uint32_t value = 0;
    for (; **text >= '0' && **text <= '9' && value < UINT8_MAX; (*text)++) {
        value = value * 10 + (uint32_t)(**text - '0');
    }
    return value;
}

/* "3.13.1 experimental free-threading build (main, ..." */
static uint32_t version_of(const char *text)
{
    uint32_t major = number(&text);
    text += *text == '.';
    return major << 8 | number(&text);
}

/* If a build option changed the header of all objects, the type is not where we expect it. */
static bool objects_fit(const struct ms_loaded_elf *elf)
{
    const char *code_type = ms_elf_variable(elf, "PyCode_Type");
    const void *type_type = ms_elf_variable(elf, "PyType_Type"), *type;
    if (code_type == NULL || type_type == NULL) {
        return false;
    }
    memcpy(&type, code_type + MS_PYTHON_TYPE, sizeof(type));
    return type == type_type;
}

/* C has no portable cast from an object's address to a function's. */
#define BIND(member, elf, name)                       \
    do {                                              \
        void *address = ms_elf_function(elf, name);   \
        memcpy(&(member), &address, sizeof(address)); \
    } while (false)

static bool bind_functions(const struct ms_loaded_elf *elf, struct ms_python_interpreter *out)
{
    BIND(out->own_thread, elf, "PyGILState_GetThisThreadState");
    BIND(out->finalizing, elf, "Py_IsFinalizing"); /* 3.13 */
    if (out->finalizing == NULL) {
        BIND(out->finalizing, elf, "_Py_IsFinalizing");
    }
    BIND(out->running_thread, elf, "_PyThreadState_UncheckedGet");
    BIND(out->last_interpreter, elf, "PyInterpreterState_Head");
    BIND(out->main_interpreter, elf, "PyInterpreterState_Main");
    bool several = out->running_thread != NULL && out->last_interpreter != NULL &&
                   out->main_interpreter != NULL;
    return out->own_thread != NULL && out->finalizing != NULL && (out->layout.active || several);
}

static void recognize(const struct ms_loaded_elf *elf, struct result *result)
{
    struct ms_python_interpreter *python = &result->found;
    const char *(*get_version)(void);
    BIND(get_version, elf, "Py_GetVersion");
    const char *text = get_version != NULL ? get_version() : "";
    uint32_t version = version_of(text);
    if (strstr(text, "free-threading") != NULL) {
        refuse(result, version, " without the GIL");
    } else if (!ms_python_layout(version, ms_elf_variable(elf, "_PyRuntime"), &python->layout)) {
        refuse(result, version, "");
    } else if (!objects_fit(elf) || !bind_functions(elf, python)) {
        refuse(result, version, ", built with options that change its objects");
    } else {
        python->code_type = (uint64_t)ms_elf_variable(elf, "PyCode_Type");
        const struct ms_python_interpreter *none = NULL;
        (void)atomic_compare_exchange_strong_explicit(&current, &none, python, memory_order_release,
                                                      memory_order_relaxed);
    }
}

static void search(void)
{
    struct ms_loaded_elf elf;
    unsigned long long libraries = ms_elf_generation();
    if (libraries == atomic_load_explicit(&watched, memory_order_acquire)) {
        return;
    }
    if (ms_elf_defining("PyGILState_GetThisThreadState", &elf)) {
        unsigned taken = atomic_fetch_add_explicit(&results_taken, 1, memory_order_relaxed);
        if (taken < RESULTS_MAX) {
            recognize(&elf, &results[taken]);
        }
    }
    atomic_store_explicit(&watched, libraries, memory_order_release);
}

const struct ms_python_interpreter *ms_python_interpreter(void)
{
    const struct ms_python_interpreter *known =
        atomic_load_explicit(&current, memory_order_acquire);
    if (known != NULL) {
        return known;
    }
    if (captures++ % SEARCH_EVERY == 0 && ms_python_refusal() == NULL) {
        search();
    }
    return atomic_load_explicit(&current, memory_order_acquire);
}

/* If process_vm_readv is forbidden: asks by a system call that reads a signal set, and only then
 * rejects the operation. */
static bool mapped(uint64_t at, size_t bytes)
{
    enum { PAGE = 4096, NO_SUCH_WAY = -1, SET = 8 };
    if (at < PAGE || at > UINT64_MAX - PAGE - bytes) {
        return false;
    }
    for (uint64_t page = at & ~(uint64_t)(PAGE - 1); page < at + bytes; page += PAGE) {
        if (syscall(SYS_rt_sigprocmask, NO_SUCH_WAY, (void *)page, NULL, (size_t)SET) == -1 &&
            errno == EFAULT) {
            return false;
        }
    }
    return true;
}

bool ms_python_read(uint64_t at, void *to, size_t bytes)
{
    int saved = errno;
    struct iovec local = {to, bytes}, remote = {(void *)at, bytes};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    bool read = got == (ssize_t)bytes;
    if (got < 0 && (errno == EPERM || errno == ENOSYS) && mapped(at, bytes)) {
        memcpy(to, (const void *)at, bytes);
        read = true;
    }
    errno = saved;
    return read;
}
