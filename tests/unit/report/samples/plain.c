/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose symbols and lines the tests know: comments at the ends of lines name them. It
 * prints where local_leaf returns to, as an address of its file. */
#include <stdio.h>

extern const char __ehdr_start[];

__attribute__((visibility("default"))) int exported_outer(int x);
__attribute__((visibility("default"))) int weak_twin(int x);

static volatile long returns_to;

__attribute__((noinline)) static int local_leaf(int x)
{
    returns_to = (const char *)__builtin_return_address(0) - __ehdr_start;
    return x + SAMPLE_BUILD;
}

static inline __attribute__((always_inline)) int inlined_middle(int x)
{
    return local_leaf(x) + 1; /* middle */
}

__attribute__((noinline)) int exported_outer(int x)
{
    return inlined_middle(x) * 3; /* outer */
}

__attribute__((weak, alias("exported_outer"))) int weak_twin(int x);

int main(void)
{
    const int result = exported_outer(1);

    printf("0x%lx\n", returns_to);
    return result == 0;
}
