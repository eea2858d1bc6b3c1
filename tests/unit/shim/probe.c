/* SPDX-License-Identifier: Apache-2.0 */
/* A program that asks for functions of the driver on one road, named by its first argument, and
 * says for each what it got: "-" for nothing, else <object>:<symbol>. What it prints with and
 * without the preload is compared by test_door.c. The driver's path stands in DRIVER. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/frameworks/pjrt_api.h"

typedef int (*get_address_t)(const char *, void **, int, uint64_t);
typedef int (*get_address_v2_t)(const char *, void **, int, uint64_t, int *);
typedef int (*alloc_t)(void *, size_t);

static void say(const char *what, void *address)
{
    Dl_info info;
    if (address == NULL) {
        printf("%s -\n", what);
    } else if (dladdr(address, &info) == 0 || info.dli_sname == NULL) {
        printf("%s ?\n", what);
    } else {
        const char *slash = strrchr(info.dli_fname, '/');
        printf("%s %s:%s\n", what, slash != NULL ? slash + 1 : info.dli_fname, info.dli_sname);
    }
}

static void *driver(int flags)
{
    void *handle = dlopen(getenv("DRIVER"), RTLD_NOW | flags);
    if (handle == NULL) {
        fprintf(stderr, "probe: %s\n", dlerror());
        exit(2);
    }
    return handle;
}

static const char *const names[] = {"cuMemAlloc",
                                    "cuMemAlloc_v2",
                                    "cuMemAlloc_v9",
                                    "cuMemAllocAsync_ptsz",
                                    "cuCtxCreate_v3",
                                    "cuCtxCreate_v4",
                                    "cuInit",
                                    "cuda_nothing",
                                    "curl_easy_init",
                                    "cudnnCreate",
                                    "cuMemAlloc_v2_suffix",
                                    "cu",
                                    "cuMemAllocManaged",
                                    "cuEventQuery",
                                    "malloc"};

static void ask_names(void *handle)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(handle, names[i]);
        const char *error = dlerror();
        say(names[i], found);
        if ((found == NULL) != (error != NULL)) {
            printf("%s: dlerror says %s\n", names[i], error != NULL ? error : "nothing");
        }
    }
}

static void road_handle(void)
{
    ask_names(driver(RTLD_LOCAL));
}

static void road_default(void)
{
    ask_names(RTLD_DEFAULT);
    puts("global");
    (void)driver(RTLD_GLOBAL);
    ask_names(RTLD_DEFAULT);
}

static void road_next(void)
{
    ask_names(RTLD_NEXT);
    puts("global");
    (void)driver(RTLD_GLOBAL);
    ask_names(RTLD_NEXT);
}

static void road_main(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    ask_names(self);
    puts("global");
    (void)driver(RTLD_GLOBAL);
    ask_names(self);
}

static void road_version(void)
{
    void *handle = driver(RTLD_LOCAL);
    say("cuMemAlloc_v2", dlvsym(handle, "cuMemAlloc_v2", "NO_SUCH_1.0"));
    say("malloc", dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5"));
    say("malloc", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_9.9"));
}

static void ask_versions(void *handle, uint64_t flags)
{
    static const char *const bases[] = {"cuMemAlloc",       "cuMemAllocAsync", "cuCtxCreate",
                                        "cuGetProcAddress", "cuEventQuery",    "cuNothing"};
    static const int versions[] = {0, 2000, 3010, 3020, 11010, 11020, 11040, 11080, 12050, 99999};
    get_address_t get = (get_address_t)dlsym(handle, "cuGetProcAddress");
    get_address_v2_t get_v2 = (get_address_v2_t)dlsym(handle, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        for (size_t j = 0; j < sizeof(versions) / sizeof(versions[0]); j++) {
            char what[96];
            int status = 7;
            void *one = NULL, *two = NULL, *three = NULL;
            int results[3] = {get(bases[i], &one, versions[j], flags),
                              get_v2(bases[i], &two, versions[j], flags, &status),
                              get_v2(bases[i], &three, versions[j], flags, NULL)};
            snprintf(what, sizeof(what), "%s %d %d: %d %d %d (%d)", bases[i], versions[j],
                     (int)flags, results[0], results[1], results[2], status);
            say(what, one);
            if (one != two || two != three) {
                printf("%s: the two resolvers differ\n", bases[i]);
            }
        }
    }
}

static void road_resolver(void)
{
    void *handle = driver(RTLD_LOCAL);
    for (uint64_t flags = 0; flags <= 2; flags++) {
        ask_versions(handle, flags);
    }
}

/* A second libcuda in a namespace of its own is none of the door's business. */
static void road_namespace(void)
{
    void *handle = dlmopen(LM_ID_NEWLM, getenv("DRIVER"), RTLD_NOW);
    say("cuMemAlloc_v2", handle != NULL ? dlsym(handle, "cuMemAlloc_v2") : NULL);
}

/* Which function of the driver is reached in the end, and how often the serving half was asked. */
static void road_call(void)
{
    void *handle = driver(RTLD_LOCAL);
    const char *(*last)(void) = (const char *(*)(void))dlsym(handle, "fake_last_called");
    void *address;
    ((alloc_t)dlsym(handle, "cuMemAlloc_v2"))(&address, 1);
    printf("called %s\n", last());
    ((alloc_t)dlsym(handle, "cuMemAlloc"))(&address, 1);
    printf("called %s\n", last());
    get_address_t get = (get_address_t)dlsym(handle, "cuGetProcAddress");
    get("cuMemAllocAsync", &address, 11080, 2);
    if (address != NULL) {
        ((alloc_t)address)(&address, 1);
    }
    printf("called %s\n", last());
    int (*served)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_served");
    if (served != NULL) {
        printf("served %d\n", served());
    }
}

/* A child of a process that uses the driver, and what it execs. */
static void road_fork(void)
{
    void *handle = driver(RTLD_LOCAL), *address;
    alloc_t alloc = (alloc_t)dlsym(handle, "cuMemAlloc_v2");
    alloc(&address, 1);
    fflush(stdout);
    int (*served)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_served");
    int status = 0, before = served != NULL ? served() : 0;
    pid_t child = fork();
    if (child == 0) {
        alloc(&address, 1);
        exit(served != NULL ? served() - before : 0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    child = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): what is tested */
    if (child == 0) {
        execl("/bin/echo", "echo", "from vfork", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    child = fork();
    if (child == 0) {
        execl("/bin/echo", "echo", "from fork", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    alloc(&address, 1);
    printf("parent %d\n", served != NULL ? served() - before : 1);
}

/* Forked before the driver is used: every child is a process of its own. */
static void road_fork_first(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        void *address;
        ((alloc_t)dlsym(driver(RTLD_LOCAL), "cuMemAlloc_v2"))(&address, 1);
        exit(0);
    }
    waitpid(child, &status, 0);
}

static void *spin(void *ctx)
{
    alloc_t alloc = (alloc_t)ctx;
    void *address;
    for (;;) {
        alloc(&address, 1);
    }
    return NULL;
}

static void road_threads(void)
{
    alloc_t alloc = (alloc_t)dlsym(driver(RTLD_LOCAL), "cuMemAlloc_v2");
    void *address;
    alloc(&address, 1);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, (void *)alloc) != 0) {
            exit(3);
        }
    }
    usleep(20000);
    exit(5); /* with four threads inside hooks */
}

static void road_millions(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    for (int i = 0; i < 1000000; i++) {
        if (dlsym(self, "strlen") == NULL) {
            exit(3);
        }
    }
}

/* As a loader of its own would: the driver's symbol table is read, and dlsym is not asked. */
static void road_bypass(void)
{
    struct link_map *map = driver(RTLD_LOCAL);
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *gnu_hash = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_STRTAB) {
            strings = (const char *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_GNU_HASH) {
            gnu_hash = (const uint32_t *)entry->d_un.d_ptr;
        }
    }
    if (symbols == NULL || strings == NULL || gnu_hash == NULL) {
        exit(3);
    }
    for (uint32_t i = gnu_hash[1]; i < gnu_hash[1] + 64; i++) {
        if (strcmp(strings + symbols[i].st_name, "cuInit") == 0) {
            ((int (*)(unsigned))(map->l_addr + symbols[i].st_value))(0);
            return;
        }
    }
    exit(3);
}

/* With another interposer of the same function preloaded behind the door. */
static void road_interposer(void)
{
    void *handle = driver(RTLD_GLOBAL), *address;
    printf("result %d\n", ((alloc_t)dlsym(handle, "cuMemAlloc_v2"))(&address, 1));
    int (*served)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_served");
    printf("served %d\n", served());
    int (*asked)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "other_asked");
    printf("other dlsym used %d\n", asked() > 0);
    void *other = dlopen(getenv("OTHER"), RTLD_NOW | RTLD_NOLOAD);
    alloc_t theirs = (alloc_t)dlsym(other, "cuMemAlloc_v2");
    printf("own next %d\n", theirs(&address, 1));
    void *next = ((void *(*)(void))dlsym(other, "other_next"))();
    printf("next is its own %d\n", next == dlsym(other, "puts"));
}

static void road_torch(void)
{
    (void)driver(RTLD_LOCAL);
    void *torch = dlopen(getenv("FAKE_TORCH"), RTLD_NOW | RTLD_LOCAL);
    void *address;
    ((alloc_t)dlsym(driver(RTLD_LOCAL), "cuMemFree_v2"))(&address, 1);
    int (*served)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_served");
    int before = served != NULL ? served() : 0;
    ((void (*)(void))dlsym(torch, "fake_report"))();
    printf("real %d\n", ((int (*)(void))dlsym(torch, "fake_usages"))());
    void *found = ((void *(*)(void))dlsym(torch, "fake_find"))();
    printf("in its own scope %d, in ours %d\n", found != NULL,
           dlsym(RTLD_DEFAULT, "fake_usages") != NULL);
    if (served != NULL) {
        printf("served %d\n", served() - before);
    }
}

typedef void *(*reg_mr_t)(void *, void *, size_t, int);
typedef void *(*reg_mr_iova2_t)(void *, void *, size_t, uint64_t, unsigned);

/* Memory is registered with a network card, with the driver loaded and without. */
static void road_verbs(void)
{
    void *verbs = dlopen(getenv("VERBS"), RTLD_NOW | RTLD_LOCAL);
    uint64_t (*pinned)(void) = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "fake_pinned");
    void *pd = (void *)0x10, *addr = (void *)0x20000;
    for (int loaded = 0; loaded < 2; loaded++) {
        reg_mr_t reg = (reg_mr_t)dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.1");
        printf("registered %d", (int)(intptr_t)reg(pd, addr, 0x30000, 1));
        printf(" pinned %#x\n", pinned != NULL ? (unsigned)pinned() : 0u);
        reg = (reg_mr_t)dlsym(verbs, "ibv_reg_mr");
        printf("registered %d", (int)(intptr_t)reg(pd, addr, 0x30000, 2));
        printf(" pinned %#x\n", pinned != NULL ? (unsigned)pinned() : 0u);
        reg_mr_iova2_t reg2 = (reg_mr_iova2_t)dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.1");
        printf("registered %d", (int)(intptr_t)reg2(pd, addr, 0x30000, 40, 3));
        printf(" pinned %#x\n", pinned != NULL ? (unsigned)pinned() : 0u);
        reg = (reg_mr_t)dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.0");
        printf("old %d", (int)(intptr_t)reg(pd, addr, 0x30000, 4));
        printf(" pinned %#x\n", pinned != NULL ? (unsigned)pinned() : 0u);
        void *none = dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8");
        printf("missing %d %d\n", none == NULL, dlerror() != NULL);
        none = dlsym(driver(RTLD_LOCAL), "ibv_reg_mr_iova"); /* from here on it is loaded */
        printf("missing %d %d\n", none == NULL, dlerror() != NULL);
        int (*dereg)(void *) = (int (*)(void *))dlsym(verbs, "ibv_dereg_mr");
        printf("other %d\n", dereg((void *)7));
        void *address;
        (void)((alloc_t)dlsym(driver(RTLD_LOCAL), "cuMemAlloc_v2"))(&address, 1);
    }
}

/* What PyTorch reads of the environment, and what everybody else does. */
static void road_settings(void)
{
    static const char *const settings[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "HOME"};
    void *torch = dlopen(getenv("FAKE_TORCH"), RTLD_NOW | RTLD_LOCAL);
    const char *(*setting)(const char *) =
        (const char *(*)(const char *))dlsym(torch, "fake_setting");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *own = getenv(settings[i]), *theirs = setting(settings[i]);
        printf("%s: own %s, theirs %s%s\n", settings[i], own != NULL ? own : "none",
               theirs != NULL ? theirs : "none", theirs == setting(settings[i]) ? "" : " (moves)");
    }
}

/* PyTorch reads its settings; the program makes some, or none, and pools, the last of which
 * have allocators. */
static void road_pool(void)
{
    void *torch = dlopen(getenv("FAKE_TORCH"), RTLD_NOW | RTLD_LOCAL);
    (void)((const char *(*)(const char *))dlsym(torch, "fake_setting"))("PYTORCH_CUDA_ALLOC_CONF");
    const char *made = getenv("FAKE_SETTINGS");
    if (made != NULL) {
        ((void (*)(const char *))dlsym(torch, "fake_set"))(made);
    }
    const char *(*pool)(void *) = (const char *(*)(void *))dlsym(torch, "fake_pool");
    printf("%s\n", pool(NULL));
    printf("%s\n", pool((void *)0x2000));
    printf("%s\n", pool((void *)0x3000));
}

/* In 2.7, a pool without an allocator. */
static void road_old_pool(void)
{
    void *torch = dlopen(getenv("FAKE_TORCH"), RTLD_NOW | RTLD_LOCAL);
    (void)((const char *(*)(const char *))dlsym(torch, "fake_setting"))("PYTORCH_CUDA_ALLOC_CONF");
    printf("%s\n", ((const char *(*)(void))dlsym(torch, "fake_old_pool"))());
}

/* JAX makes a client: with a limit or a choice of the user's where these variables are set. */
static void road_plugin(void)
{
    void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    const struct pjrt_api *api = ((pjrt_get_t)dlsym(plugin, "GetPjrtApi"))();
    const char *allocator = getenv("XLA_PYTHON_CLIENT_ALLOCATOR");
    allocator = allocator != NULL ? allocator : "default";
#define OPTION(text, kind)                                                                  \
    .struct_bytes = sizeof(struct pjrt_option), .name = (text), .name_bytes = strlen(text), \
    .type = (kind)
    struct pjrt_option options[] = {
        {OPTION("platform_name", PJRT_STRING), .value.string = "cuda", .count = 4},
        {OPTION("allocator", PJRT_STRING), .value.string = allocator, .count = strlen(allocator)},
        {OPTION("use_tfrt_gpu_client", PJRT_BOOL), .value.boolean = true, .count = 1},
        {OPTION("memory_fraction", PJRT_FLOAT), .count = 1}};
    size_t count = 3;
    if (getenv("FAKE_LIMIT") != NULL) {
        count = 4;
    } else if (getenv("FAKE_AHEAD") != NULL) {
        options[count++] = (struct pjrt_option){OPTION("preallocate", PJRT_BOOL),
                                                .value.boolean = true, .count = 1};
    }
    struct pjrt_client_create args = {.options = options, .option_count = count};
    printf("made %d\n", api->client_create(&args) == NULL);
    int (*is_whole)(const struct pjrt_api *) =
        (int (*)(const struct pjrt_api *))dlsym(plugin, "fake_plugin_is_whole");
    printf("whole %d, same %d, options %d\n", is_whole(api),
           api == ((pjrt_get_t)dlsym(plugin, "GetPjrtApi"))(),
           args.options == options && args.option_count == count);
    void *none = dlsym(plugin, "GetProcess");
    printf("other %d %d\n", none == NULL, dlerror() != NULL);
}

/* Whether TensorFlow is told to ask the driver for each tensor. */
static void road_tensorflow(void)
{
    void *tensorflow = dlopen(getenv("FAKE_TENSORFLOW"), RTLD_NOW | RTLD_LOCAL);
    const char *(*setting)(const char *) =
        (const char *(*)(const char *))dlsym(tensorflow, "fake_setting");
    const char *own = getenv("TF_GPU_ALLOCATOR"), *theirs = setting("TF_GPU_ALLOCATOR");
    printf("own %s, theirs %s, home %s\n", own != NULL ? own : "none",
           theirs != NULL ? theirs : "none", setting("HOME"));
}

/* Two names of the driver for one function: each name has its own hook. */
static void road_shared(void)
{
    void *handle = driver(RTLD_LOCAL);
    get_address_t get = (get_address_t)dlsym(handle, "cuGetProcAddress");
    say("cuMemFreeAsync", dlsym(handle, "cuMemFreeAsync"));
    say("cuMemFreeAsync_ptsz", dlsym(handle, "cuMemFreeAsync_ptsz"));
    for (uint64_t flags = 0; flags <= 2; flags++) {
        void *found = NULL;
        get("cuMemFreeAsync", &found, 11030, flags);
        say("cuMemFreeAsync", found);
    }
}

/* The driver in nobody's scope but its own: which of its functions the whole program is told of. */
static void road_local(void)
{
    (void)driver(RTLD_LOCAL);
    ask_names(RTLD_DEFAULT);
}

static void road_nothing(void)
{
}

static const struct {
    const char *name;
    void (*go)(void);
} roads[] = {{"handle", road_handle},       {"default", road_default},
             {"next", road_next},           {"main", road_main},
             {"version", road_version},     {"resolver", road_resolver},
             {"namespace", road_namespace}, {"call", road_call},
             {"fork", road_fork},           {"fork-first", road_fork_first},
             {"threads", road_threads},     {"millions", road_millions},
             {"bypass", road_bypass},       {"interposer", road_interposer},
             {"torch", road_torch},         {"nothing", road_nothing},
             {"shared", road_shared},       {"local", road_local},
             {"settings", road_settings},   {"verbs", road_verbs},
             {"pool", road_pool},           {"old-pool", road_old_pool},
             {"plugin", road_plugin},       {"tensorflow", road_tensorflow}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(roads) / sizeof(roads[0]); i++) {
        if (strcmp(argv[1], roads[i].name) == 0) {
            roads[i].go();
            return 0;
        }
    }
    fprintf(stderr, "probe: no such road\n");
    return 2;
}
