/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the simulated GPU. See settings.h. */
#include "settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct sim_settings sim_settings;
static pid_t reader;

static void complain(const char *name, const char *given, const char *allowed)
{
    fprintf(stderr, "simgpu: %s=%s is not understood; allowed: %s. The default is used.\n", name,
            given, allowed);
}

/* A whole number with an optional binary unit (K, KiB, M, MiB, G, GiB, T, TiB, B). */
bool sim_parse_bytes(const char *text, uint64_t *bytes)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !(value >= 0)) {
        return false;
    }
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    if (unit) {
        value *= (double)(1ull << (10 * (unit - units + 1)));
        end++;
        if (*end == 'i') {
            end++;
        }
    }
    if (*end == 'B') {
        end++;
    }
    if (*end || value >= 9e18) {
        return false;
    }
    *bytes = (uint64_t)value;
    return true;
}

static bool parse_number(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-')) {
        return false;
    }
    *value = parsed;
    return true;
}

static void read_bytes(const char *name, uint64_t *value)
{
    const char *text = getenv(name);
    if (text && *text && !sim_parse_bytes(text, value)) {
        complain(name, text, "a size such as 24GiB, 512MiB or 4096");
    }
}

static void read_number(const char *name, uint64_t *value, uint64_t low, uint64_t high)
{
    const char *text = getenv(name);
    uint64_t parsed;
    if (!text || !*text) {
        return;
    }
    if (!parse_number(text, &parsed) || parsed < low || parsed > high) {
        char allowed[80];
        snprintf(allowed, sizeof allowed, "a number from %llu to %llu", (unsigned long long)low,
                 (unsigned long long)high);
        complain(name, text, allowed);
        return;
    }
    *value = parsed;
}

static void read_flag(const char *name, bool *value)
{
    uint64_t number = *value;
    read_number(name, &number, 0, 1);
    *value = number != 0;
}

static void read_capability(void)
{
    const char *text = getenv("SIMGPU_CAPABILITY");
    if (!text || !*text) {
        return;
    }
    unsigned major, minor;
    char rest;
    if (sscanf(text, "%2u.%1u%c", &major, &minor, &rest) != 2) {
        complain("SIMGPU_CAPABILITY", text, "MAJOR.MINOR such as 8.9");
        return;
    }
    sim_settings.capability_major = major;
    sim_settings.capability_minor = minor;
}

static void read_delay(void)
{
    const char *text = getenv("SIMGPU_DELAY_US");
    if (!text || !*text) {
        return;
    }
    char low_text[32];
    uint64_t low, high;
    size_t low_length = strcspn(text, "-");
    if (low_length < sizeof low_text) {
        memcpy(low_text, text, low_length);
        low_text[low_length] = '\0';
        const char *high_text = text[low_length] ? text + low_length + 1 : low_text;
        if (parse_number(low_text, &low) && parse_number(high_text, &high) && low <= high) {
            sim_settings.delay_low_us = low;
            sim_settings.delay_high_us = high;
            return;
        }
    }
    complain("SIMGPU_DELAY_US", text, "microseconds such as 50, or a range such as 20-400");
}

static void read_contents(void)
{
    const char *text = getenv("SIMGPU_CONTENTS");
    if (!text || !*text) {
        return;
    }
    if (strcasecmp(text, "full") == 0 || strcasecmp(text, "none") == 0) {
        sim_settings.contents = strcasecmp(text, "full") == 0;
        return;
    }
    complain("SIMGPU_CONTENTS", text, "full or none");
}

static void read_schedule(void)
{
    const char *text = getenv("SIMGPU_SCHEDULE");
    if (!text || !*text) {
        return;
    }
    if (strcasecmp(text, "early") == 0 || strcasecmp(text, "late") == 0) {
        sim_settings.late = strcasecmp(text, "late") == 0;
        return;
    }
    complain("SIMGPU_SCHEDULE", text, "early or late");
}

static void read_values(void)
{
    const char *text = getenv("SIMGPU_VALUES");
    if (!text || !*text) {
        return;
    }
    if (strcasecmp(text, "zeros") == 0 || strcasecmp(text, "random") == 0) {
        sim_settings.values = strcasecmp(text, "zeros") == 0 ? SIM_VALUES_ZEROS : SIM_VALUES_RANDOM;
        return;
    }
    complain("SIMGPU_VALUES", text, "zeros or random");
}

static const char *read_text(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

void sim_settings_read(void)
{
    reader = getpid();
    sim_settings = (struct sim_settings){
        .name = "Simulated GPU",
        .devices = 1,
        .memory_bytes = 24ull << 30,
        .processors = 128,
        .context_bytes = 400ull << 20,
        .capability_major = 8,
        .capability_minor = 9,
        .driver_version = 13020,
        .seed = 1,
        .strict = true,
        .contents = true,
        .vmm = true,
        .host_numa = true,
        .peers = true,
    };
    read_number("SIMGPU_DEVICES", &sim_settings.devices, 1, SIM_MAX_DEVICES);
    read_bytes("SIMGPU_MEMORY", &sim_settings.memory_bytes);
    read_number("SIMGPU_PROCESSORS", &sim_settings.processors, 1, 1024);
    read_bytes("SIMGPU_CONTEXT", &sim_settings.context_bytes);
    read_bytes("SIMGPU_MODULE", &sim_settings.module_bytes);
    read_bytes("SIMGPU_GRAPH", &sim_settings.graph_bytes);
    read_number("SIMGPU_DRIVER_VERSION", &sim_settings.driver_version, 11000, 99999);
    read_number("SIMGPU_SEED", &sim_settings.seed, 0, UINT64_MAX);
    read_number("SIMGPU_DESTROY_US", &sim_settings.destroy_us, 0, 60000000);
    read_number("SIMGPU_CONTEXT_US", &sim_settings.context_us, 0, 60000000);
    read_number("SIMGPU_MODULE_US", &sim_settings.module_us, 0, 60000000);
    read_number("SIMGPU_FIRST_LAUNCH_US", &sim_settings.first_launch_us, 0, 60000000);
    read_bytes("SIMGPU_FIRST_LAUNCH", &sim_settings.first_launch_bytes);
    read_number("SIMGPU_PEER_US", &sim_settings.peer_us, 0, 60000000);
    read_number("SIMGPU_QUEUE", &sim_settings.queue, 0, UINT64_MAX);
    read_flag("SIMGPU_STRICT", &sim_settings.strict);
    read_capability();
    read_delay();
    read_contents();
    read_values();
    read_schedule();
    read_number("SIMGPU_LATENCY", &sim_settings.latency, 0, 1000);
    read_flag("SIMGPU_HOST_NUMA", &sim_settings.host_numa);
    read_flag("SIMGPU_RDMA", &sim_settings.rdma);
    read_flag("SIMGPU_DMA_BUF", &sim_settings.dma_buf);
    read_flag("SIMGPU_PEERS", &sim_settings.peers);
    read_flag("SIMGPU_MULTICAST", &sim_settings.multicast);
    bool no_vmm = false;
    read_flag("SIMGPU_NO_VMM", &no_vmm);
    sim_settings.vmm = !no_vmm;
    if (*read_text("SIMGPU_NAME")) {
        sim_settings.name = read_text("SIMGPU_NAME");
    }
    sim_settings.fail = read_text("SIMGPU_FAIL");
    sim_settings.other = read_text("SIMGPU_OTHER");
    sim_settings.shared = read_text("SIMGPU_SHARED");
}

void sim_settings_of_child(void)
{
    if (reader != getpid()) {
        sim_settings_read();
    }
}
