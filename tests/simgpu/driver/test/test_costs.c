/* SPDX-License-Identifier: Apache-2.0 */
/* With SIMGPU_LATENCY, memory calls take as long as they took on a card. COSTS_PATH: its table, as
 * scripts/gpu_check.sh leaves it. */
#include "../cost.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const names[SIM_COSTS] = {"create", "map", "set_access", "unmap", "release"};

static int call_named(const char *name)
{
    for (int call = 0; call < SIM_COSTS; call++) {
        if (strcmp(name, names[call]) == 0) {
            return call;
        }
    }
    return -1;
}

Test(costs, of_one_chunk_are_those_of_the_card)
{
    FILE *file = fopen(COSTS_PATH, "r");
    char line[256];
    int rows = 0;
    cr_assert(file != NULL, "%s", COSTS_PATH);
    while (fgets(line, sizeof line, file) != NULL) {
        char name[64];
        unsigned long long bytes = 0, took_ns = 0;
        const char *row = strncmp(line, "# host: ", 8) == 0 ? line + 8 : line;
        if (sscanf(row, "%63[a-z_],%llu,%llu", name, &bytes, &took_ns) != 3) {
            continue;
        }
        int on_host = row != line || strcmp(name, "create_host") == 0;
        int call = strcmp(name, "create_host") == 0 ? SIM_COST_CREATE : call_named(name);
        if (call >= 0) {
            cr_assert_eq(sim_cost_ns((enum sim_cost)call, bytes, on_host, false), took_ns, "%s",
                         line);
            rows++;
        }
    }
    (void)fclose(file);
    cr_assert_geq(rows, 2 * SIM_COSTS);
}
