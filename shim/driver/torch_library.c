/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the functions through which PyTorch reports, and its version. */
#include "shim/driver/torch_library.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/cancel.h"
#include "shim/driver/elf.h"
#include "shim/process/hot.h"
#include "shim/process/session.h"

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

MS_HOT_DATA struct ms_torch_library ms_torch_library;

static _Atomic bool found, reported;

/* The version is in version.py of PyTorch's package, next to the folder of its libraries. */
static void note_version(const char *libc10_path)
{
    static const char key[] = "__version__ = '";
    char path[sizeof(((struct ms_loaded_elf *)0)->path) + 32], line[128];
    const char *slash = strrchr(libc10_path, '/');
    (void)snprintf(path, sizeof(path), "%.*s/../version.py",
                   slash != NULL ? (int)(slash - libc10_path) : 0, libc10_path);
    const int cancellation = ms_cancel_hold();
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            char *version = line + strlen(key);
            version[strcspn(version, "'\n")] = '\0';
            ms_session_version("torch", version);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    ms_cancel_let(cancellation);
}

/* Without dlopen and dlsym: PyTorch's lock is held here, and the loader's may be held by a thread
 * that waits for PyTorch's in a library's constructor. Besides, libc10 is in no global scope. */
bool ms_torch_library_find(void)
{
    struct ms_loaded_elf elf;
    if (atomic_load_explicit(&found, memory_order_acquire)) {
        return true;
    }
    if (!ms_elf_loaded("libc10.so", &elf)) {
        return false;
    }
    atomic_store(&ms_torch_library.usage, ms_elf_function(&elf, TEXT(MS_TORCH_USAGE)));
    atomic_store(&ms_torch_library.out_of_memory,
                 ms_elf_function(&elf, TEXT(MS_TORCH_OUT_OF_MEMORY)));
    atomic_store(&ms_torch_library.grad_mode, ms_elf_function(&elf, TEXT(MS_TORCH_GRAD_MODE)));
    if (!atomic_exchange(&found, true)) {
        note_version(elf.path);
    }
    return true;
}

bool ms_torch_library_will_report(void)
{
    return ms_torch_library_find() &&
           atomic_load_explicit(&ms_torch_library.usage, memory_order_relaxed) != NULL;
}

/* c10::GradMode::is_enabled() reads a variable of this thread. */
enum ms_grad_mode ms_torch_library_grad_mode(void)
{
    typedef bool (*is_enabled_t)(void);
    const is_enabled_t is_enabled =
        ms_torch_library_find() ? (is_enabled_t)atomic_load(&ms_torch_library.grad_mode) : NULL;
    if (is_enabled == NULL) {
        return MS_GRAD_UNKNOWN;
    }
    return is_enabled() ? MS_GRAD_ON : MS_GRAD_OFF;
}

void ms_torch_library_reported(void)
{
    atomic_store_explicit(&reported, true, memory_order_relaxed);
}

bool ms_torch_library_reports(void)
{
    return atomic_load_explicit(&reported, memory_order_relaxed);
}
