/* SPDX-License-Identifier: Apache-2.0 */
/* Whose word on PyTorch's settings counts. */
#include <criterion/criterion.h>

#include "shim/tables/torch_conf.h"

static bool open_for(enum ms_torch_mode mode, const char *cuda, const char *plain)
{
    const char *values[MS_TORCH_CONF_NAMES] = {cuda, NULL, plain};
    return ms_torch_conf_open(mode, values);
}

Test(torch_conf, names)
{
    cr_assert_eq(ms_torch_conf_of("PYTORCH_CUDA_ALLOC_CONF"), 0);
    cr_assert_eq(ms_torch_conf_of("PYTORCH_ALLOC_CONF"), 2);
    cr_assert_eq(ms_torch_conf_of("PYTORCH_ALLOC_CONFIG"), -1);
    cr_assert_eq(ms_torch_conf_of("PATH"), -1);
}

Test(torch_conf, the_users_word_wins)
{
    static const char *const silent[] = {NULL,
                                         "",
                                         "max_split_size_mb:128",
                                         "roundup_power2_divisions:[64:8,256:4,>:1]",
                                         "expandable_segments_reserve:40G",
                                         "my_backend:1, pinned_num_register_threads:2"};
    static const char *const said[] = {"expandable_segments:False",
                                       "max_split_size_mb:128,expandable_segments:True",
                                       "max_split_size_mb:128 , expandable_segments : False"};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        cr_assert(open_for(MS_TORCH_NATIVE, silent[i], NULL), "%zu", i);
        cr_assert(open_for(MS_TORCH_TENSOR, NULL, silent[i]), "%zu", i);
    }
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        cr_assert_not(open_for(MS_TORCH_NATIVE, said[i], NULL), "%zu", i);
        cr_assert_not(open_for(MS_TORCH_NATIVE, NULL, said[i]), "%zu", i);
        cr_assert(open_for(MS_TORCH_TENSOR, said[i], NULL), "%zu", i);
    }
    cr_assert_not(open_for(MS_TORCH_NATIVE, "backend:native", NULL));
    cr_assert_not(open_for(MS_TORCH_TENSOR, "max_split_size_mb:9", "backend:native"));
}

Test(torch_conf, off_adds_nothing)
{
    cr_assert_not(open_for(MS_TORCH_OFF, NULL, NULL));
    cr_assert_null(ms_torch_conf_added(MS_TORCH_OFF));
    cr_assert_str_eq(ms_torch_conf_added(MS_TORCH_NATIVE), "expandable_segments:True");
    cr_assert_str_eq(ms_torch_conf_added(MS_TORCH_TENSOR), "backend:cudaMallocAsync");
}

Test(torch_conf, switches)
{
    cr_assert(ms_torch_switch("1"));
    cr_assert(ms_torch_switch("Yes"));
    cr_assert(ms_torch_switch("TRUE"));
    cr_assert_not(ms_torch_switch(NULL));
    cr_assert_not(ms_torch_switch(""));
    cr_assert_not(ms_torch_switch("0"));
    cr_assert_not(ms_torch_switch("on"));
}
