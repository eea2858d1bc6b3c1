/* SPDX-License-Identifier: Apache-2.0 */
/* The options of this process. They are read once, and anew in a child that was forked before the
 * driver was used. */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/containers/pages.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/tables/options.h"

#define RUN_ID_CHARACTERS 256

struct own_options {
    pid_t pid; /* the process that read them */
    struct ms_options parsed;
    char output[2 * PATH_MAX];
    char run_id[RUN_ID_CHARACTERS];
    char group[MS_GROUP_CHARACTERS_MAX + 1];
};

MS_HOT_DATA static const struct own_options *_Atomic own;

static void say(void *ctx, const char *sentence)
{
    (void)ctx;
    ms_log_in_run(sentence);
}

static void say_nothing(void *ctx, const char *sentence)
{
    (void)ctx;
    (void)sentence;
}

/* The environment may change while the program runs, so strings that are used later are copied. */
static void own_strings(struct own_options *mine)
{
    const char *output = mine->parsed.output_dir;
    const char *start = output[0] == '/' ? "" : ms_process_start_dir();
    (void)snprintf(mine->output, sizeof(mine->output), "%s%s%s", start, start[0] != '\0' ? "/" : "",
                   output);
    mine->parsed.output_dir = mine->output;
    if (mine->parsed.run_id != NULL) {
        strncpy(mine->run_id, mine->parsed.run_id, sizeof(mine->run_id) - 1);
        mine->parsed.run_id = mine->run_id;
    }
    if (mine->parsed.group != NULL) {
        strncpy(mine->group, mine->parsed.group, sizeof(mine->group) - 1);
        mine->parsed.group = mine->group;
    }
}

static __attribute__((noinline, cold)) const struct ms_options *read_options(void)
{
    const struct own_options *published = NULL;
    struct own_options *mine = ms_pages_map(sizeof(*mine));
    if (!mine) {
        static struct ms_options
            defaults; /* no memory left; racing threads write the same values */
        ms_options_parse((char *[]){NULL}, &defaults, say_nothing, NULL);
        return &defaults;
    }
    mine->pid = getpid();
    ms_options_parse(environ, &mine->parsed, say_nothing, NULL);
    own_strings(mine);
    if (!atomic_compare_exchange_strong(&own, &published, mine)) {
        ms_pages_unmap(mine, sizeof(*mine));
        return &published->parsed;
    }
    /* Parsed again to log warnings, now that the log level is known. */
    struct ms_options again;
    ms_options_parse(environ, &again, say, NULL);
    return &mine->parsed;
}

MS_HOT const struct ms_options *ms_options(void)
{
    const struct own_options *published = atomic_load_explicit(&own, memory_order_acquire);
    return __builtin_expect(published != NULL, 1) ? &published->parsed : read_options();
}

void ms_options_of_child(void)
{
    const struct own_options *published = atomic_load_explicit(&own, memory_order_acquire);
    if (published != NULL && published->pid != getpid()) {
        /* Not unmapped: threads that got the options before may still read them. */
        atomic_compare_exchange_strong(&own, &published, NULL);
    }
}
