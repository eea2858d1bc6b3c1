/* SPDX-License-Identifier: Apache-2.0 */
/* A library with nothing in it, to stand where one with everything is expected. */
int empty_library(void);

int empty_library(void)
{
    return 0;
}
