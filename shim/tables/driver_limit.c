/* SPDX-License-Identifier: Apache-2.0 */
/* Reads limits on device memory that others have set: control groups, MPS, PyTorch. */
#include "shim/tables/driver_limit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "shim/tables/host_bytes.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"
#include "shim/tables/torch_conf.h"

static uint64_t left(const struct ms_driver_limit *limit)
{
    if (limit->bytes == 0) {
        return UINT64_MAX;
    }
    return limit->bytes > limit->used_bytes ? limit->bytes - limit->used_bytes : 0;
}

/* --- control groups --------------------------------------------------------------------------- */

struct pci {
    unsigned domain, bus, device;
};

struct tightest {
    struct pci pci;
    struct ms_driver_limit limit;
};

/* The number in the device's line; 0 if there is none, or it says "max". */
static uint64_t region_in(int group, const char *name, const struct pci *pci)
{
    char line[256];
    uint64_t found = 0;
    FILE *file = ms_host_file(group, name);
    while (file && fgets(line, sizeof(line), file)) {
        struct pci at;
        uint64_t bytes = 0;
        if (sscanf(line, "nvidia/%x:%x:%x.%*u/vidmem %" SCNu64, &at.domain, &at.bus, &at.device,
                   &bytes) == 4 &&
            at.domain == pci->domain && at.bus == pci->bus && at.device == pci->device) {
            found = bytes;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

static void read_group(void *ctx, int group, const char *path)
{
    struct tightest *tightest = ctx;
    const struct ms_driver_limit here = {
        .by = MS_LIMITED_BY_CGROUP,
        .bytes = region_in(group, "dmem.max", &tightest->pci),
        .used_bytes = region_in(group, "dmem.current", &tightest->pci),
    };
    (void)path;
    if (left(&here) < left(&tightest->limit)) {
        tightest->limit = here;
    }
}

struct ms_driver_limit ms_limit_of_group(const char *root, const char *pci)
{
    struct tightest tightest = {.limit = {.by = MS_LIMITED_BY_NOTHING}};
    if (sscanf(pci, "%x:%x:%x", &tightest.pci.domain, &tightest.pci.bus, &tightest.pci.device) ==
        3) {
        ms_host_groups(root, read_group, &tightest);
    }
    return tightest.limit;
}

/* --- MPS -------------------------------------------------------------------------------------- */

/* "1G", "512MB", "1024"; 0 for anything else. */
static uint64_t amount(const char *text)
{
    char *end = NULL;
    uint64_t number = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    const char *units = "KMG";
    const char *unit = end && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    return number > UINT64_MAX >> shift ? 0 : number << shift;
}

struct ms_driver_limit ms_limit_of_mps(const char *setting, int ordinal)
{
    struct ms_driver_limit limit = {.by = MS_LIMITED_BY_NOTHING};
    for (const char *at = setting ? setting : ""; *at != '\0';) {
        char *end = NULL;
        at += strspn(at, ", ");
        long device = strtol(at, &end, 10);
        if (end != at && *end == '=' && device == ordinal && amount(end + 1) != 0) {
            limit.by = MS_LIMITED_BY_MPS;
            limit.bytes = amount(end + 1);
        }
        at += strcspn(at, ",");
    }
    return limit;
}

struct ms_driver_limit ms_limit_tighter(struct ms_driver_limit a, struct ms_driver_limit b)
{
    return left(&b) < left(&a) ? b : a;
}

/* --- PyTorch ---------------------------------------------------------------------------------- */

struct ms_driver_limit ms_limit_of_torch(char *const *environment, uint64_t total_bytes)
{
    struct ms_driver_limit limit = {.by = MS_LIMITED_BY_NOTHING};
    for (int i = 0; i < MS_TORCH_CONF_NAMES; i++) {
        const char *list = ms_environment(environment, ms_torch_conf_names[i]);
        const char *value = list ? ms_torch_conf_value(list, "per_process_memory_fraction") : NULL;
        char fraction[32] = "";
        uint64_t ppb = 0;
        if (value) {
            value += strspn(value, " ");
            (void)snprintf(fraction, sizeof fraction, "%.*s", (int)strcspn(value, " ,]"), value);
        }
        if (ms_parse_fraction(fraction, &ppb) && ppb < MS_PPB) {
            limit.by = MS_LIMITED_BY_TORCH_CONF;
            limit.bytes = ms_of_ppb(total_bytes, ppb);
        }
    }
    return limit;
}
