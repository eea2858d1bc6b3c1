/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the driver's functions, and maps names and addresses to the rows of hooks.def. */
#include "shim/driver/resolve.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "allocator/base/containers/pages.h"
#include "allocator/base/locks/debt.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/early_text.h"
#include "shim/driver/elf.h"
#include "shim/driver/gate.h"

#define DRIVER_SONAME "libcuda.so.1"

static const size_t real_offsets[MS_HOOK_COUNT] = {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    offsetof(struct ms_real_functions, symbol),
#include "shim/tables/hooks.def"
};

const struct ms_real_functions ms_real_none;
const struct ms_real_functions *_Atomic ms_real_published = &ms_real_none;

static _Atomic bool asked_for;

/* Maps names to rows by open addressing; 0 is free. Filled when the first name that begins with
 * "cu" is looked up. A slot only ever gets the one value that belongs there, so threads may fill it
 * at the same time. */
#define NAME_SLOTS 1024u
static _Atomic uint16_t name_slots[NAME_SLOTS];
static _Atomic bool name_slots_full;

/* Maps addresses to rows. Rows that share an address follow one another from its home slot on. */
#define ADDRESS_SLOTS 2048u
struct address_slot {
    void *address;
    uint16_t row;
};

struct driver {
    struct ms_real_functions real; /* first: ms_real_published points here */
    struct ms_loaded_elf elf;
    struct address_slot slots[ADDRESS_SLOTS];
#ifdef MEMSHIM_CHECKS
    struct ms_real_functions checked; /* these check, and call those in `real` */
#endif
};

/* Each row is entered under at most four addresses: its own, and those for three sets of flags. */
_Static_assert(MS_HOOK_COUNT * 4 < ADDRESS_SLOTS, "the map of addresses needs room");
_Static_assert(MS_HOOK_COUNT * 2 < NAME_SLOTS, "the map of names needs room");

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    }
    return hash ^ hash >> 15;
}

static void fill_name_slots(void)
{
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        uint32_t at = hash_text(ms_hook_table[row].symbol);
        for (;; at++) {
            uint16_t found = 0;
            _Atomic uint16_t *slot = &name_slots[at % NAME_SLOTS];
            if (atomic_compare_exchange_strong(slot, &found, (uint16_t)(row + 1)) ||
                found == row + 1) {
                break;
            }
        }
    }
    atomic_store_explicit(&name_slots_full, true, memory_order_release);
}

int ms_hook_of_symbol(const char *symbol)
{
    if (!atomic_load_explicit(&name_slots_full, memory_order_acquire)) {
        fill_name_slots();
    }
    for (uint32_t at = hash_text(symbol);; at++) {
        uint16_t found = atomic_load_explicit(&name_slots[at % NAME_SLOTS], memory_order_relaxed);
        if (found == 0) {
            return -1;
        }
        if (ms_early_same(ms_hook_table[found - 1].symbol, symbol)) {
            return found - 1;
        }
    }
}

static uint32_t address_home(const void *address)
{
    uint64_t bits = (uintptr_t)address;
    return (uint32_t)((bits * 0x9e3779b97f4a7c15u) >> 40);
}

static void map_address(struct driver *driver, void *address, int row)
{
    if (address == NULL) {
        return;
    }
    for (uint32_t at = address_home(address);; at++) {
        struct address_slot *slot = &driver->slots[at % ADDRESS_SLOTS];
        if (slot->address == address && slot->row == row) {
            return;
        }
        if (slot->address == NULL) {
            *slot = (struct address_slot){address, (uint16_t)row};
            return;
        }
    }
}

static void *real_of(const struct driver *driver, int row)
{
    void *function;
    memcpy(&function, (const char *)&driver->real + real_offsets[row], sizeof(function));
    return function;
}

/* Asks the driver's own resolver, in its newer version if there is one. The driver need not be
 * initialized for that: the runtime asks it before cuInit. */
static void *ask_resolver(const struct driver *driver, const char *name, int version,
                          cuuint64_t flags)
{
    void *function = NULL;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    if (driver->real.cuGetProcAddress_v2 != NULL) {
        result = driver->real.cuGetProcAddress_v2(name, &function, version, flags, &found);
    } else if (driver->real.cuGetProcAddress != NULL) {
        result = driver->real.cuGetProcAddress(name, &function, version, flags);
    }
    return result == CUDA_SUCCESS ? function : NULL;
}

/* Asks with the flags that cuda.h documents for each flavour. 0 means the legacy stream in a
 * program that was not compiled for per-thread default streams. */
static void map_row(struct driver *driver, int row)
{
    static const cuuint64_t per_thread[] = {CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    static const cuuint64_t legacy[] = {CU_GET_PROC_ADDRESS_DEFAULT,
                                        CU_GET_PROC_ADDRESS_LEGACY_STREAM};
    static const cuuint64_t any[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    static const struct {
        const cuuint64_t *flags;
        size_t count;
    } asked[] = {[MS_HOOK_ANY] = {any, 3},
                 [MS_HOOK_LEGACY] = {legacy, 2},
                 [MS_HOOK_PER_THREAD] = {per_thread, 1}};
    const struct ms_hook_info *hook = &ms_hook_table[row];
    map_address(driver, real_of(driver, row), row);
    for (size_t i = 0; i < asked[hook->flavour].count; i++) {
        map_address(driver,
                    ask_resolver(driver, hook->base, hook->version, asked[hook->flavour].flags[i]),
                    row);
    }
}

#ifdef MEMSHIM_CHECKS
#    define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
        static CUresult checked_##symbol params                                     \
        {                                                                           \
            const struct ms_real_functions *real =                                  \
                atomic_load_explicit(&ms_real_published, memory_order_acquire);     \
            ms_lock_check_driver(#symbol);                                          \
            ms_debt_check(#symbol);                                                 \
            return real->symbol args;                                               \
        }
#    include "shim/tables/hooks.def"

static void check_calls(struct driver *driver)
{
#    define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
        driver->checked.symbol = driver->real.symbol != NULL ? checked_##symbol : NULL;
#    include "shim/tables/hooks.def"
}
#else
static void check_calls(struct driver *driver)
{
    (void)driver;
}
#endif

static struct driver *build_driver(const struct ms_loaded_elf *elf)
{
    struct driver *driver = ms_pages_map(sizeof(*driver));
    if (!driver) {
        return NULL;
    }
    driver->elf = *elf;
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        void *function = ms_elf_function(elf, ms_hook_table[row].symbol);
        memcpy((char *)&driver->real + real_offsets[row], &function, sizeof(function));
    }
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        map_row(driver, row);
    }
    check_calls(driver);
    return driver;
}

/* The search walks over everything that is loaded, and programs without a driver ask often. So it
 * is repeated only after something was loaded. */
static bool driver_loaded(struct ms_loaded_elf *out)
{
    static _Atomic uint64_t last_generation;
    uint64_t generation = ms_elf_generation();
    if (atomic_load_explicit(&last_generation, memory_order_relaxed) == generation) {
        return false;
    }
    if (ms_elf_loaded(DRIVER_SONAME, out)) {
        return true;
    }
    atomic_store_explicit(&last_generation, generation, memory_order_relaxed);
    return false;
}

/* This uses neither a lock nor pthread_once. Pinning the driver takes the loader's lock, which
 * another thread may hold while a library's constructor waits for us. Threads that come at the same
 * time build one map each, and the first one to publish wins. */
const struct ms_real_functions *ms_resolve(void)
{
    const struct ms_real_functions *published =
        atomic_load_explicit(&ms_real_published, memory_order_acquire);
    struct ms_loaded_elf elf;
    if (published != &ms_real_none || !driver_loaded(&elf)) {
        return published;
    }
    struct driver *driver = build_driver(&elf);
    if (driver == NULL) {
        return published;
    }
    /* The pointers stay in use, so the application's dlclose must not unload the driver. */
    bool whole = strlen(elf.path) + 1 < sizeof(elf.path);
    (void)dlopen(whole ? elf.path : DRIVER_SONAME, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (!atomic_compare_exchange_strong(&ms_real_published, &published, &driver->real)) {
        ms_pages_unmap(driver, sizeof(*driver));
        return published;
    }
    return &driver->real;
}

static const struct driver *driver_published(void)
{
    const struct ms_real_functions *real =
        atomic_load_explicit(&ms_real_published, memory_order_acquire);
    return real == &ms_real_none ? NULL : (const struct driver *)real;
}

#ifdef MEMSHIM_CHECKS
const struct ms_real_functions *ms_real_checked(void)
{
    const struct driver *driver = driver_published();
    return driver != NULL ? &driver->checked : &ms_real_none;
}
#endif

void *ms_real_find(const char *symbol)
{
    const struct driver *driver = driver_published();
    return driver != NULL ? ms_elf_function(&driver->elf, symbol) : NULL;
}

/* How well a row fits a query if several rows share an address. From dlsym: by exported name. From
 * cuGetProcAddress: by base name, flavour, and the newest version that is not newer than asked
 * for. */
static int fitness(const struct ms_hook_info *hook, const struct ms_query *query)
{
    if (query->version == 0) {
        return strcmp(hook->symbol, query->name) == 0 ? 2 : 1;
    }
    if (strcmp(hook->base, query->name) != 0 || hook->version > query->version) {
        return 1;
    }
    bool per_thread = (query->flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    bool other_flavour = hook->flavour == (per_thread ? MS_HOOK_LEGACY : MS_HOOK_PER_THREAD);
    return 2 + 2 * hook->version + (other_flavour ? 0 : 1);
}

int ms_row_at(const void *address, const struct ms_query *query)
{
    const struct driver *driver = driver_published();
    int best = 0;
    int row = -1;
    for (uint32_t at = address_home(address); driver != NULL; at++) {
        const struct address_slot *slot = &driver->slots[at % ADDRESS_SLOTS];
        if (slot->address == NULL) {
            break;
        }
        int fits = slot->address == address ? fitness(&ms_hook_table[slot->row], query) : 0;
        if (fits > best) {
            best = fits;
            row = slot->row;
        }
    }
    return row;
}

void ms_resolve_note_asked(void)
{
    atomic_store_explicit(&asked_for, true, memory_order_relaxed);
}

/* A program linked to libcuda calls the hooks without any look-up, so only programs that load
 * libcuda by dlopen can be judged. cuDevicePrimaryCtxGetState shows whether cuInit was called, even
 * after the driver has shut down (CUDA_ERROR_DEINITIALIZED). */
bool ms_resolve_bypassed(void)
{
    struct ms_loaded_elf elf;
    if (atomic_load_explicit(&asked_for, memory_order_relaxed) ||
        !ms_elf_loaded(DRIVER_SONAME, &elf) || ms_elf_needed(DRIVER_SONAME)) {
        return false;
    }
    CUresult (*state)(CUdevice, unsigned int *, int *) =
        ms_elf_function(&elf, "cuDevicePrimaryCtxGetState");
    unsigned int flags = 0;
    int active = 0;
    CUresult result = state != NULL ? state(0, &flags, &active) : CUDA_ERROR_NOT_INITIALIZED;
    return (result == CUDA_SUCCESS && active != 0) || result == CUDA_ERROR_DEINITIALIZED;
}
