/* SPDX-License-Identifier: Apache-2.0 */
/* A double of nvidia-smi for the commands of a dry run, first on their PATH. It answers for the
 * simulated cards: the table, -L, and --query-gpu and --query-compute-apps as CSV, for all cards or
 * one (-i). It rejects any other option by name, with status 2. */
#include "nvml_abi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES 128
#define PROCESSES  64
#define MIB        (1ull << 20)

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *out, unsigned length);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *out, unsigned length);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int sensor, unsigned *celsius);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *milliwatts);
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *milliwatts);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                     nvmlProcessInfo_v2_t *infos);

struct card {
    nvmlDevice_t handle;
    unsigned index, cards;
    char name[TEXT_BYTES], uuid[TEXT_BYTES], driver[TEXT_BYTES];
    nvmlPciInfo_t pci;
    nvmlMemory_t memory;
    nvmlUtilization_t use;
    unsigned celsius, milliwatts, limit_milliwatts;
    int major, minor, cuda;
};

static struct card read_card(nvmlDevice_t handle)
{
    struct card card = {.handle = handle};
    nvmlDeviceGetIndex(handle, &card.index);
    nvmlDeviceGetCount_v2(&card.cards);
    nvmlDeviceGetName(handle, card.name, TEXT_BYTES);
    nvmlDeviceGetUUID(handle, card.uuid, TEXT_BYTES);
    nvmlSystemGetDriverVersion(card.driver, TEXT_BYTES);
    nvmlSystemGetCudaDriverVersion_v2(&card.cuda);
    nvmlDeviceGetPciInfo_v3(handle, &card.pci);
    nvmlDeviceGetMemoryInfo(handle, &card.memory);
    nvmlDeviceGetUtilizationRates(handle, &card.use);
    nvmlDeviceGetTemperature(handle, NVML_TEMPERATURE_GPU, &card.celsius);
    nvmlDeviceGetPowerUsage(handle, &card.milliwatts);
    nvmlDeviceGetPowerManagementLimit(handle, &card.limit_milliwatts);
    nvmlDeviceGetCudaComputeCapability(handle, &card.major, &card.minor);
    return card;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* process: NULL unless the query is about processes. */
typedef void show_t(const struct card *card, const nvmlProcessInfo_v2_t *process, char *out);

#define SHOW(name, format, ...)                                                               \
    static void name(const struct card *card, const nvmlProcessInfo_v2_t *process, char *out) \
    {                                                                                         \
        (void)card, (void)process;                                                            \
        (void)snprintf(out, TEXT_BYTES, format, __VA_ARGS__);                                 \
    }

SHOW(show_index, "%u", card->index)
SHOW(show_count, "%u", card->cards)
SHOW(show_name, "%s", card->name)
SHOW(show_uuid, "%s", card->uuid)
SHOW(show_bus, "%s", card->pci.busId)
SHOW(show_driver, "%s", card->driver)
SHOW(show_total, "%llu", card->memory.total / MIB)
SHOW(show_used, "%llu", card->memory.used / MIB)
SHOW(show_free, "%llu", card->memory.free / MIB)
SHOW(show_reserved, "%d", 0)
SHOW(show_gpu_use, "%u", card->use.gpu)
SHOW(show_memory_use, "%u", card->use.memory)
SHOW(show_celsius, "%u", card->celsius)
SHOW(show_watts, "%.2f", card->milliwatts / 1000.0)
SHOW(show_limit, "%.2f", card->limit_milliwatts / 1000.0)
SHOW(show_capability, "%d.%d", card->major, card->minor)
SHOW(show_state, "%s", "P0")
SHOW(show_mode, "%s", "Default")
SHOW(show_enabled, "%s", "Enabled")
SHOW(show_not, "%s", "[N/A]")
SHOW(show_pid, "%u", process->pid)
SHOW(show_process_used, "%llu", process->usedGpuMemory / MIB)

static void show_process_name(const struct card *card, const nvmlProcessInfo_v2_t *process,
                              char *out)
{
    (void)card;
    if (nvmlSystemGetProcessName(process->pid, out, TEXT_BYTES) != NVML_SUCCESS) {
        (void)snprintf(out, TEXT_BYTES, "[Not Found]");
    }
}

static void show_time(const struct card *card, const nvmlProcessInfo_v2_t *process, char *out)
{
    const time_t now = time(NULL);
    struct tm parts;
    (void)card, (void)process;
    (void)strftime(out, TEXT_BYTES, "%Y/%m/%d %H:%M:%S.000", localtime_r(&now, &parts));
}

static const struct field {
    const char *name, *unit; /* unit: "" if it has none */
    show_t *show;
    bool of_process;
} fields[] = {
    {"index", "", show_index, false},
    {"count", "", show_count, false},
    {"name", "", show_name, false},
    {"gpu_name", "", show_name, false},
    {"uuid", "", show_uuid, false},
    {"gpu_uuid", "", show_uuid, false},
    {"pci.bus_id", "", show_bus, false},
    {"gpu_bus_id", "", show_bus, false},
    {"serial", "", show_not, false},
    {"timestamp", "", show_time, false},
    {"driver_version", "", show_driver, false},
    {"memory.total", "MiB", show_total, false},
    {"memory.used", "MiB", show_used, false},
    {"memory.free", "MiB", show_free, false},
    {"memory.reserved", "MiB", show_reserved, false},
    {"utilization.gpu", "%", show_gpu_use, false},
    {"utilization.memory", "%", show_memory_use, false},
    {"temperature.gpu", "", show_celsius, false},
    {"power.draw", "W", show_watts, false},
    {"power.limit", "W", show_limit, false},
    {"compute_cap", "", show_capability, false},
    {"compute_mode", "", show_mode, false},
    {"persistence_mode", "", show_enabled, false},
    {"pstate", "", show_state, false},
    {"mig.mode.current", "", show_not, false},
    {"fan.speed", "%", show_not, false},
    {"pid", "", show_pid, true},
    {"process_name", "", show_process_name, true},
    {"used_memory", "MiB", show_process_used, true},
    {"used_gpu_memory", "MiB", show_process_used, true},
};

static const struct field *find_field(const char *name, size_t length, bool of_process)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        if (strncmp(fields[i].name, name, length) == 0 && fields[i].name[length] == '\0' &&
            (of_process || !fields[i].of_process)) {
            return &fields[i];
        }
    }
    return NULL;
}

/* ---- queries --------------------------------------------------------------------------------- */

struct call {
    const char *query, *which; /* which: an index, a UUID or a bus; NULL: all */
    bool processes, header, units, list;
};

static bool check_fields(const struct call *call)
{
    for (const char *at = call->query; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (!find_field(at, length, call->processes)) {
            printf("Field \"%.*s\" is not a valid field to query.\n\n", (int)length, at);
            return false;
        }
    }
    return true;
}

static void print_header(const struct call *call)
{
    for (const char *at = call->query; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t length = strcspn(at, ",");
        const struct field *field = find_field(at, length, call->processes);
        printf("%s%.*s", at == call->query ? "" : ", ", (int)length, at);
        if (*field->unit) {
            printf(" [%s]", field->unit);
        }
    }
    putchar('\n');
}

static void print_row(const struct call *call, const struct card *card,
                      const nvmlProcessInfo_v2_t *process)
{
    for (const char *at = call->query; *at; at += strcspn(at, ","), at += *at == ',') {
        const struct field *field = find_field(at, strcspn(at, ","), call->processes);
        char text[TEXT_BYTES] = "";
        field->show(card, process, text);
        printf("%s%s", at == call->query ? "" : ", ", text);
        if (*field->unit && call->units && text[0] != '[') {
            printf(" %s", field->unit);
        }
    }
    putchar('\n');
}

static void print_card(const struct call *call, const struct card *card)
{
    nvmlProcessInfo_v2_t processes[PROCESSES];
    unsigned count = PROCESSES;
    if (call->list) {
        printf("GPU %u: %s (UUID: %s)\n", card->index, card->name, card->uuid);
    } else if (!call->query) {
        printf("| %3u  %-40.40s %s |\n| P0   %4.0fW / %4.0fW   %8lluMiB / %8lluMiB   %3u%%      "
               "Default |\n",
               card->index, card->name, card->pci.busId, card->milliwatts / 1000.0,
               card->limit_milliwatts / 1000.0, card->memory.used / MIB, card->memory.total / MIB,
               card->use.gpu);
    } else if (!call->processes) {
        print_row(call, card, NULL);
    } else if (nvmlDeviceGetComputeRunningProcesses_v3(card->handle, &count, processes) ==
               NVML_SUCCESS) {
        for (unsigned i = 0; i < count; i++) {
            print_row(call, card, &processes[i]);
        }
    }
}

static void print_top(void)
{
    char driver[TEXT_BYTES] = "";
    int cuda = 0;
    nvmlSystemGetDriverVersion(driver, TEXT_BYTES);
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("+---------------------------------------------------------------------+\n"
           "| NVIDIA-SMI (simulated)   Driver Version: %s   CUDA Version: %d.%d |\n"
           "+---------------------------------------------------------------------+\n",
           driver, cuda / 1000, cuda % 1000 / 10);
}

/* One card, or all of them. */
static int print_all(const struct call *call)
{
    unsigned count = 0, shown = 0;
    nvmlDeviceGetCount_v2(&count);
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t handle = NULL;
        char index[16];
        (void)snprintf(index, sizeof index, "%u", i);
        nvmlDeviceGetHandleByIndex_v2(i, &handle);
        struct card card = read_card(handle);
        if (!call->which || strcmp(call->which, index) == 0 ||
            strcmp(call->which, card.uuid) == 0 || strcmp(call->which, card.pci.busId) == 0) {
            print_card(call, &card);
            shown++;
        }
    }
    if (shown == 0) {
        puts("No devices were found");
        return 6;
    }
    return 0;
}

/* ---- the call -------------------------------------------------------------------------------- */

static bool take_format(const char *text, struct call *call)
{
    bool csv = false;
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length == 3 && strncmp(text, "csv", length) == 0) {
            csv = true;
        } else if (length == 8 && strncmp(text, "noheader", length) == 0) {
            call->header = false;
        } else if (length == 7 && strncmp(text, "nounits", length) == 0) {
            call->units = false;
        } else {
            return false;
        }
        text += length + (text[length] == ',');
    }
    return csv;
}

/* The value of `--name=value`, or of `--name value` or `-x value`; NULL: another option. */
static const char *value_of(char **argv, int *at, const char *name, const char *letter)
{
    size_t length = strlen(name);
    if (strncmp(argv[*at], name, length) == 0 && argv[*at][length] == '=') {
        return argv[*at] + length + 1;
    }
    if (strcmp(argv[*at], name) == 0 || (letter && strcmp(argv[*at], letter) == 0)) {
        return argv[*at + 1] ? argv[++*at] : "";
    }
    return NULL;
}

static bool take_word(char **argv, int *at, struct call *call)
{
    const char *value;
    if (strcmp(argv[*at], "-L") == 0 || strcmp(argv[*at], "--list-gpus") == 0) {
        call->list = true;
        return true;
    }
    if ((value = value_of(argv, at, "--query-gpu", NULL))) {
        call->query = value;
        return true;
    }
    if ((value = value_of(argv, at, "--query-compute-apps", NULL))) {
        call->query = value;
        call->processes = true;
        return true;
    }
    if ((value = value_of(argv, at, "--id", "-i"))) {
        call->which = value;
        return true;
    }
    value = value_of(argv, at, "--format", NULL);
    return value && take_format(value, call);
}

int main(int argc, char **argv)
{
    struct call call = {.header = true, .units = true};
    for (int i = 1; i < argc; i++) {
        if (!take_word(argv, &i, &call)) {
            (void)fprintf(stderr,
                          "nvidia-smi (simulated): %s is not answered; there are no words, -L, "
                          "-i, --query-gpu, --query-compute-apps, --format=csv,noheader,nounits\n",
                          argv[i] ? argv[i] : "");
            return 2;
        }
    }
    nvmlInit_v2();
    if (call.query && !check_fields(&call)) {
        return 2;
    }
    if (call.query && call.header) {
        print_header(&call);
    } else if (!call.query && !call.list) {
        print_top();
    }
    return print_all(&call);
}
