/* SPDX-License-Identifier: Apache-2.0 */
/* The options: environment variables named MEMSHIM_*, from the table in options.def. */
#ifndef MEMSHIM_SHIM_TABLES_OPTIONS_H
#define MEMSHIM_SHIM_TABLES_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_DEVICES_MAX 64

/* How much is logged to stderr. */
enum ms_log_level { MS_LOG_OFF, MS_LOG_WARN, MS_LOG_INFO, MS_LOG_DEBUG };

enum ms_torch_mode { MS_TORCH_NATIVE, MS_TORCH_TENSOR, MS_TORCH_OFF };

/* Its name in MEMSHIM_TORCH. */
const char *ms_torch_mode_name(enum ms_torch_mode mode);

/* The frameworks that have an adaptor in shim/frameworks. Named in MEMSHIM_FRAMEWORKS. */
enum ms_framework {
#define MS_FRAMEWORK(id, name, what) MS_FRAMEWORK_##id,
#include "shim/tables/frameworks.def"
    MS_FRAMEWORKS
};

#define MS_GROUP_CHARACTERS_MAX 64u  /* longest value of MEMSHIM_GROUP */
#define MS_STACK_DEPTH_MAX      256u /* largest value of MEMSHIM_STACK_DEPTH */

/* Which frames make a call site. */
enum ms_stacks_mode { MS_STACKS_OFF, MS_STACKS_NATIVE, MS_STACKS_PYTHON, MS_STACKS_FULL };

/* The cap of a device; if several are set, the smallest counts. */
struct ms_cap_rule {
    uint64_t fraction_ppb; /* of the device's total memory, at most MS_PPB; 0: not set */
    uint64_t limit_bytes;  /* 0: not set */
};

/* What an output folder keeps. 0: no limit. */
struct ms_keep {
    uint64_t bytes, age_ns;
};

struct ms_options {
    struct ms_cap_rule cap_all;             /* for devices without a rule of their own */
    struct ms_cap_rule cap[MS_DEVICES_MAX]; /* by CUDA ordinal */
    bool cap_of_run;                        /* MEMSHIM_CAP_OF=run */
    const char *group;                      /* MEMSHIM_GROUP; null: not set */
    const char *output_dir;                 /* MEMSHIM_OUTPUT */
    enum ms_log_level log;                  /* MEMSHIM_LOG */
    bool pool;                              /* MEMSHIM_POOL */
    enum ms_torch_mode torch;               /* MEMSHIM_TORCH; off if MEMSHIM_FRAMEWORKS excludes
                                               PyTorch */
    uint32_t frameworks;                    /* MEMSHIM_FRAMEWORKS: 1 << enum ms_framework */
    const char *forward;                    /* MEMSHIM_FORWARD; null: not set */
    enum ms_stacks_mode stacks;             /* MEMSHIM_STACKS */
    uint32_t stack_depth;                   /* MEMSHIM_STACK_DEPTH, for native and Python stacks
                                               each */
    uint64_t sample_bytes;                  /* MEMSHIM_SAMPLE_BYTES, 0: every allocation */
    bool views;                             /* MEMSHIM_VIEWS */
    bool spill;                             /* MEMSHIM_SPILL */
    uint64_t spill_limit_bytes;             /* MEMSHIM_SPILL_LIMIT; 0: from what the host has */
    bool trace;                             /* MEMSHIM_TRACE */
    uint64_t trace_limit_bytes;             /* MEMSHIM_TRACE_LIMIT */
    uint64_t report_wait_ns;                /* MEMSHIM_REPORT_WAIT */
    uint64_t wait_ns;                       /* MEMSHIM_WAIT_MS */
    uint64_t thresholds_ppb[3];             /* MEMSHIM_THRESHOLDS, as fractions of the cap,
                                               ascending */
    const char *run_id;                     /* MEMSHIM_RUN_ID; null: not set */
    uint64_t status_steps;                  /* MEMSHIM_STATUS_EVERY; 0: not by steps */
    uint64_t status_ns;                     /* the same; 0: not by time */
    uint32_t batch;                         /* MEMSHIM_BATCH; 0: not set; only the report uses it */
    bool source;                            /* MEMSHIM_SOURCE; only the report uses it */
    struct ms_keep keep;                    /* MEMSHIM_KEEP; only the report's process uses it */
};

/* The longest total wait, while some work completes now and then. */
static inline uint64_t ms_options_wait_most_ns(const struct ms_options *options)
{
    return 10 * options->wait_ns;
}

/* The process's options. The first call reads them from the environment and logs warnings; later
 * calls return the same object. */
const struct ms_options *ms_options(void);

/* Whether that framework's adaptor is on. */
static inline bool ms_options_framework(enum ms_framework framework)
{
    return (ms_options()->frameworks >> framework & 1u) != 0;
}

/* Called at the first use of the driver: a child that was forked before reads its own
 * environment. */
void ms_options_of_child(void);

/* The cap of a device of total_bytes with these options. *fraction_ppb: the fraction that decided;
 * 0 if a limit in bytes did. */
uint64_t ms_options_cap_bytes(const struct ms_options *options, int device, uint64_t total_bytes,
                              uint64_t *fraction_ppb);

/* Called for every warning: one sentence, without the prefix. */
typedef void (*ms_options_warn_t)(void *ctx, const char *sentence);

/* Pure: reads `environment` (NAME=value strings, null at the end; borrowed for as long as *out is
 * used) into *out. Calls warn for every bad value, for which the default counts, and for every
 * unknown MEMSHIM_* name. */
void ms_options_parse(char *const *environment, struct ms_options *out, ms_options_warn_t warn,
                      void *ctx);

/* MEMSHIM=off switches all of memshim off, whatever the options say. */
#define MS_OPTIONS_SWITCH "MEMSHIM"

/* Whether the environment switches memshim off. Pure; safe before main. */
bool ms_options_switched_off(char *const *environment);

/* Warns of a NAME=value string that sets the switch to an unknown value. */
void ms_options_check_switch(const char *variable, ms_options_warn_t warn, void *ctx);

#define MS_OPTION_MEANT_BYTES 48

/* If `allowed` is a list of words such as "off, warn or info", calls `each` for each word. False,
 * without a call, if it is no such list. Pure. */
bool ms_option_words(const char *allowed, void (*each)(void *ctx, const char *word, size_t length),
                     void *ctx);

/* Guesses what the user meant by a value that the option does not take: a size without its unit, a
 * fraction in percent, a misspelt word, or 1 and 0 for on and off. `allowed` is the option's text.
 * Empty if nothing can be guessed. Pure. */
void ms_options_meant(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES]);

typedef void (*ms_options_write_t)(void *ctx, const char *text);

/* Prints the table: every option with its default, its values and its meaning, for people (plain)
 * or as a Markdown table. */
void ms_options_print(bool markdown, ms_options_write_t write, void *ctx);

/* Prints the table of coverage, made from hooks.def, likewise. */
void ms_hooks_print(bool markdown, ms_options_write_t write, void *ctx);

/* NAME=value lines of the options that are set, for the trace; without MEMSHIM_RUN_ID, which
 * memshim sets itself. Returns text. */
char *ms_options_set_text(char *const *environment, char *text, size_t text_bytes);

/* Parses "512MiB", "20GiB", "1.5 GB", "1048576" as bytes, and "0.95" as a fraction in (0, 1], in
 * parts per billion (ms_of_ppb). False for anything else; then nothing is written. */
bool ms_parse_bytes(const char *text, uint64_t *bytes);

/* Likewise, of at least 1 MiB: fewer bytes are a number without its unit, such as 8 for 8GiB. */
bool ms_parse_size(const char *text, uint64_t *bytes);

/* Parses "20GiB", "30d", "20GiB,30d", at least one item. False for anything else; *keep is
 * unchanged then. */
bool ms_parse_keep(const char *text, struct ms_keep *keep);
bool ms_parse_fraction(const char *text, uint64_t *ppb);

#endif
