/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of several scenarios, of which each run plays the one that its argument names. */
#ifndef MEMSHIM_TESTS_PROCESS_SCENARIO_H
#define MEMSHIM_TESTS_PROCESS_SCENARIO_H

#include <stdio.h>
#include <string.h>

#include "say.h"

struct scenario {
    const char *name;
    void (*run)(void);
};

/* Returns the program's exit status. */
static inline int run_scenario(const struct scenario *scenarios, size_t count, int argc,
                               char **argv)
{
    EXPECT(argc == 2);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            scenarios[i].run();
            (void)printf("%s holds\n", argv[1]);
            return 0;
        }
    }
    (void)fprintf(stderr, "no scenario %s\n", argv[1]);
    return 2;
}

#endif
