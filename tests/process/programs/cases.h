/* SPDX-License-Identifier: Apache-2.0 */
/* A program of several cases, one a run. */
#ifndef MEMSHIM_TESTS_PROCESS_CASES_H
#define MEMSHIM_TESTS_PROCESS_CASES_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

/* The first argument names the case, which is run after begin and says "done"; or it is "list", for
 * the names of all. Returns the program's status: 1 where there is no such case. */
static inline int run_case(int argc, char **argv, const struct test_case *cases, size_t count,
                           void (*begin)(void))
{
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            begin();
            cases[i].run();
            (void)printf("done\n");
            return 0;
        }
        if (strcmp(argv[1], "list") == 0) {
            (void)printf("%s\n", cases[i].name);
        }
    }
    return argc > 1 && strcmp(argv[1], "list") == 0 ? 0 : 1;
}

#endif
