/* SPDX-License-Identifier: Apache-2.0 */
/* How a process is named. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "shim/tables/identity.h"

static const char *run_id(char *const *environment)
{
    static char id[128];
    ms_identity_run_id(environment, "20261121-031500-42", id, sizeof(id));
    return id;
}

Test(identity, run)
{
    cr_assert_str_eq(run_id((char *[]){NULL}), "20261121-031500-42");
    cr_assert_str_eq(run_id((char *[]){"TORCHELASTIC_RUN_ID=job7", NULL}), "job7");
    cr_assert_str_eq(run_id((char *[]){"TORCHELASTIC_RUN_ID=none", NULL}), "20261121-031500-42");
    cr_assert_str_eq(run_id((char *[]){"TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=815", NULL}),
                     "815");
    cr_assert_str_eq(
        run_id((char *[]){"TORCHELASTIC_RUN_ID=j", "TORCHELASTIC_RESTART_COUNT=0", NULL}), "j");
    cr_assert_str_eq(
        run_id((char *[]){"TORCHELASTIC_RUN_ID=j", "TORCHELASTIC_RESTART_COUNT=3", NULL}), "j.3");
    cr_assert_str_eq(run_id((char *[]){"TORCHELASTIC_RESTART_COUNT=2", NULL}),
                     "20261121-031500-42.2");
    cr_assert_str_eq(run_id((char *[]){"SLURM_JOB_ID=815", "SLURM_RESTART_COUNT=1", NULL}),
                     "815.1");
}

Test(identity, ranks)
{
    struct ms_ranks ranks = {0};
    ms_identity_ranks((char *[]){NULL}, &ranks);
    cr_assert(ranks.rank == -1 && ranks.local_rank == -1 && ranks.world_size == 0);
    ms_identity_ranks((char *[]){"RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8", "SLURM_PROCID=3", NULL},
                      &ranks);
    cr_assert(ranks.rank == 5 && ranks.local_rank == 1 && ranks.world_size == 8);
    ms_identity_ranks((char *[]){"SLURM_PROCID=3", "SLURM_LOCALID=2", "SLURM_NTASKS=4", NULL},
                      &ranks);
    cr_assert(ranks.rank == 3 && ranks.local_rank == 2 && ranks.world_size == 4);
    ms_identity_ranks((char *[]){"RANK=x", "LOCAL_RANK=-1", "WORLD_SIZE=99999999999", NULL},
                      &ranks);
    cr_assert(ranks.rank == -1 && ranks.local_rank == -1 && ranks.world_size == 0);
}

#define PROGRAM(expected, cmdline)                                         \
    do {                                                                   \
        char name[64];                                                     \
        ms_identity_program(cmdline, sizeof(cmdline), name, sizeof(name)); \
        cr_assert_str_eq(name, expected);                                  \
    } while (0)

Test(identity, program)
{
    PROGRAM("trainer", "/opt/bin/trainer\0--fast");
    PROGRAM("train", "/usr/bin/python3.11\0-u\0jobs/train.py\0--x");
    PROGRAM("train", "python\0train.py\0-m\0no");
    PROGRAM("train", "python3\0-W\0ignore\0-Xdev\0-u\0train.py");
    PROGRAM("torch.distributed.run", "python3\0-m\0torch.distributed.run\0train.py");
    PROGRAM("pkg.mod", "python3\0-um\0pkg.mod");
    PROGRAM("pkg.mod", "python3\0-mpkg.mod");
    PROGRAM("python3", "python3\0-c\0import torch");
    PROGRAM("python3", "python3");
    PROGRAM("python3", "python3\0-");
    PROGRAM("python3", "python3\0-W");
    PROGRAM("pythonic", "pythonic\0train.py");
    PROGRAM("trainer", "/lib64/ld-linux-x86-64.so.2\0./trainer\0--fast");
    PROGRAM("train", "/lib64/ld-linux-x86-64.so.2\0--inhibit-cache\0--library-path\0/a:/b\0"
                     "/opt/python3.11\0-u\0train.py");
    PROGRAM("ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2\0--library-path\0/a:/b");
    char name[64];
    ms_identity_program("", 0, name, sizeof(name));
    cr_assert_str_eq(name, "process");
}

/* Against the C library's calendar. */
Test(identity, start_id)
{
    static const int64_t times[] = {0,          951782399,  951782400,  951868800, 1709164800,
                                    1735689599, 1735689600, 4107542399, 4107542400};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        char expected[64], id[64];
        struct tm calendar;
        time_t seconds = (time_t)times[i];
        cr_assert_not_null(gmtime_r(&seconds, &calendar));
        strftime(expected, sizeof(expected), "%Y%m%d-%H%M%S-7", &calendar);
        ms_identity_start_id(times[i], 7, id, sizeof(id));
        cr_assert_str_eq(id, expected);
    }
}
