/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up machine: a folder of a test's own that stands for the root of its files. */
#ifndef MEMSHIM_TESTS_UNIT_SHIM_MADE_UP_ROOT_H
#define MEMSHIM_TESTS_UNIT_SHIM_MADE_UP_ROOT_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/memshim-root-XXXXXX";

static void make_root(void)
{
    cr_assert_not_null(mkdtemp(root));
}

static void drop_root(void)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a path of our own */
}

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

#endif
