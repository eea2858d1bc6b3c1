/* SPDX-License-Identifier: Apache-2.0 */
/* Traces made up for tests. See synthetic.h. */
#include "synthetic.h"

#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "report/trace/definitions.h"

static char folder[PATH_MAX];
static pid_t owner;

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_folder(void)
{
    if (getpid() == owner) {
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

const char *synthetic_folder(void)
{
    /* Where a test process ends by _exit, who gave it TMPDIR removes what is left there. */
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/memshim-test-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(folder)) {
        perror("mkdtemp");
        exit(1);
    }
    owner = getpid();
    atexit(remove_folder);
    return folder;
}

bool synthetic_mount(const char *size)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", folder, "tmpfs", 0, size) == 0;
}

struct ms_trace_config synthetic_config(const char *output)
{
    return (struct ms_trace_config){
        .output_dir = output,
        .process = {.run_id = "r1",
                    .host = "node-a",
                    .command = "python train.py",
                    .program = "train.py",
                    .options = "MEMSHIM_FRACTION=0.95\n",
                    .torch_mode = "native",
                    .memshim_version = "0.1.0",
                    .pid = 4711,
                    .rank = 0,
                    .local_rank = 0,
                    .world_size = 2},
    };
}

ms_trace_t *synthetic_open(const char *output)
{
    const struct ms_trace_config config = synthetic_config(output);
    char note[512];
    ms_trace_t *trace = ms_trace_open(&config, note, sizeof(note));

    if (!trace) {
        (void)fprintf(stderr, "%s\n", note);
        exit(1);
    }
    return trace;
}

uint64_t synthetic_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void tell(struct synthetic *run, struct ms_event event)
{
    event.device = run->device;
    ms_trace_emit(run->trace, &event);
    run->events++;
}

void synthetic_begin(struct synthetic *run, ms_trace_t *trace, uint64_t seed)
{
    static const uint8_t uuid[16] = {0xde, 0xad};

    *run = (struct synthetic){.trace = trace, .random = seed * 2 + 1, .next_id = 1, .arena_id = 1};
    ms_trace_device(trace, run->device, "Simulated GPU", uuid, 24 * GIB, 23 * GIB);
    run->events++;
    ms_trace_version(trace, "torch", "2.15.0");
    tell(run, (struct ms_event){.kind = MS_EVENT_CHARGE,
                                .owner = MS_OWNER_CONTEXT,
                                .bytes = 400 * MIB,
                                .aux = MS_CHARGE_CONTEXT});
    tell(run, (struct ms_event){.kind = MS_EVENT_CHUNK_CREATE, .id = 7, .bytes = 4 * GIB});
    tell(run, (struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC,
                                .id = 1,
                                .addr = 0x7f0000000000,
                                .bytes = 4 * GIB,
                                .aux = 4 * GIB,
                                .stream = 1});
    tell(run, (struct ms_event){
                  .kind = MS_EVENT_BLOCK_ARENA, .id = 1, .addr = 0x7f0000000000, .bytes = 4 * GIB});
}

void synthetic_churn(struct synthetic *run, uint64_t events)
{
    for (uint64_t i = 0; i < events; i++) {
        const uint64_t random = synthetic_random(&run->random);
        const uint64_t slot = random % SYNTHETIC_SLOTS;
        struct ms_event *tensor = &run->live[slot];

        if (tensor->id) {
            struct ms_event death = *tensor;

            death.kind = MS_EVENT_TENSOR_FREE;
            death.site = 0;
            death.aux = 0;
            tensor->id = 0;
            run->live_bytes -= death.bytes;
            run->deaths++;
            tell(run, death);
            continue;
        }
        *tensor = (struct ms_event){
            .kind = MS_EVENT_TENSOR_ALLOC,
            .id = ++run->next_id,
            .addr = 0x7f0000000000 + slot * 8 * MIB,
            .bytes = 512 * (1 + (random >> 20) % 16000),
            .site = (uint32_t)(slot % 100),
            .aux = run->arena_id,
        };
        run->live_bytes += tensor->bytes;
        run->allocations++;
        if (run->live_bytes > run->peak_live_bytes) {
            run->peak_live_bytes = run->live_bytes;
        }
        tell(run, *tensor);
    }
}

/* A struct and the text behind it. */
static void define(ms_trace_t *trace, uint32_t kind, const void *is, size_t bytes, const char *text)
{
    char payload[1024];

    memcpy(payload, is, bytes);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): names have no end of their own */
    memcpy(payload + bytes, text, strlen(text));
    if (!ms_trace_define(trace, kind, payload, bytes + strlen(text))) {
        (void)fprintf(stderr, "a definition was refused\n");
        exit(1);
    }
}

/* A code object all of whose instructions are on its first line. CPython 3.11's table: one entry of
 * 8 code units, without columns, 0 lines further. */
static void define_code(ms_trace_t *trace, uint32_t id, uint32_t line, const char *file,
                        const char *function)
{
    static const char table[] = {(char)(0x80 | 13 << 3 | 7), 0};
    struct {
        struct ms_code_definition is;
        char texts[512];
    } code = {.is = {.id = id,
                     .version = 3 << 8 | 11,
                     .first_line = line,
                     .file_bytes = (uint32_t)strlen(file),
                     .function_bytes = (uint32_t)strlen(function),
                     .table_bytes = sizeof(table)}};
    const int bytes = snprintf(code.texts, sizeof(code.texts), "%s%s", file, function);

    memcpy(code.texts + bytes, table, sizeof(table));
    (void)ms_trace_define(trace, MS_DEFINE_CODE, &code,
                          sizeof(code.is) + (size_t)bytes + sizeof(table));
}

/* A file of frames: one that is not there, or the one that a test has chosen. */
static const char *script(const char *variable)
{
    const char *chosen = getenv(variable);

    return chosen ? chosen : "/job/train.py";
}

/* NOLINTBEGIN(misc-misleading-bidirectional): that is what makes the names hostile */
static void define_site(ms_trace_t *trace, uint32_t id)
{
    const bool hostile = id == 7, backward = id >= 90;
    const struct ms_python_definition step = {.id = id + 1, .caller = 1, .code = id + 1};
    const struct ms_site_definition site = {.id = id,
                                            .native = 1,
                                            .python = backward ? 0 : id + 1,
                                            .tag = hostile ? 2 : id % 2,
                                            .thread =
                                                backward ? MS_THREAD_BACKWARD : MS_THREAD_PYTHON};

    define_code(trace, id + 1, SYNTHETIC_LINE(id),
                hostile ? SYNTHETIC_HOSTILE : script("SYNTHETIC_SCRIPT"),
                hostile ? SYNTHETIC_HOSTILE : "step");
    define(trace, MS_DEFINE_PYTHON, &step, sizeof(step), "");
    define(trace, MS_DEFINE_SITE, &site, sizeof(site), "");
}

void synthetic_define(ms_trace_t *trace)
{
    const struct ms_module_definition module = {.id = 1, .base = 0x400000, .bytes = 1 << 20};
    const struct ms_native_definition native = {.id = 1, .module = 1, .address = 0x1234};
    const struct ms_python_definition outer = {.id = 1, .code = 1, .flags = MS_PYTHON_ENTRY};
    const struct ms_tag_definition tag = {.id = 1, .name_bytes = 7};
    const struct ms_tag_definition inner = {
        .id = 2, .outer = 1, .name_bytes = (uint32_t)strlen(SYNTHETIC_HOSTILE)};

    define(trace, MS_DEFINE_MODULE, &module, sizeof(module), "/nowhere/libjob.so");
    define(trace, MS_DEFINE_NATIVE, &native, sizeof(native), "");
    define_code(trace, 1, 10, script("SYNTHETIC_CALLER"), "main");
    define(trace, MS_DEFINE_PYTHON, &outer, sizeof(outer), "");
    define(trace, MS_DEFINE_TAG, &tag, sizeof(tag), "forward");
    define(trace, MS_DEFINE_TAG, &inner, sizeof(inner), SYNTHETIC_HOSTILE);
    for (uint32_t id = 1; id < 100; id++) {
        define_site(trace, id);
    }
}
/* NOLINTEND(misc-misleading-bidirectional) */

struct ms_oom_state synthetic_oom(uint64_t requested_bytes, enum ms_oom_source source)
{
    return (struct ms_oom_state){
        .requested_bytes = requested_bytes,
        .cap_bytes = 23 * GIB,
        .device_total_bytes = 24 * GIB,
        .charged_bytes = 4 * GIB + 400 * MIB,
        .pool_bytes = 4 * GIB,
        .context_bytes = 400 * MIB,
        .live_bytes = 4 * GIB,
        .driver_free_bytes = 24 * GIB - 4 * GIB - 400 * MIB,
        .source = (uint8_t)source,
        .fraction_known = 1,
        .fraction = 0.95,
    };
}

char *synthetic_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *content = NULL;
    long length;

    if (!file) {
        perror(path);
        exit(1);
    }
    (void)fseek(file, 0, SEEK_END);
    length = ftell(file);
    rewind(file);
    content = malloc((size_t)length + 1);
    *bytes = fread(content, 1, (size_t)length, file);
    content[*bytes] = '\0';
    (void)fclose(file);
    return content;
}
