/* SPDX-License-Identifier: Apache-2.0 */
/* The options: environment variables named MEMSHIM_*, all from the one table in options.def. */
#ifndef MEMSHIM_SHIM_TABLES_OPTIONS_H
#define MEMSHIM_SHIM_TABLES_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_DEVICES_MAX 64

/* What is said on stderr. */
enum ms_log_level { MS_LOG_OFF, MS_LOG_WARN, MS_LOG_INFO, MS_LOG_DEBUG };

enum ms_torch_mode { MS_TORCH_NATIVE, MS_TORCH_TENSOR, MS_TORCH_OFF };

/* As it is written in MEMSHIM_TORCH. */
const char *ms_torch_mode_name(enum ms_torch_mode mode);

/* What memshim knows something of, each an adaptor of shim/frameworks. Named in MEMSHIM_FRAMEWORKS.
 */
enum ms_framework {
#define MS_FRAMEWORK(id, name, what) MS_FRAMEWORK_##id,
#include "shim/tables/frameworks.def"
    MS_FRAMEWORKS
};

#define MS_GROUP_CHARACTERS_MAX 64u  /* MEMSHIM_GROUP: at most */
#define MS_STACK_DEPTH_MAX      256u /* MEMSHIM_STACK_DEPTH: at most */

/* Which frames make a call site. */
enum ms_stacks_mode { MS_STACKS_OFF, MS_STACKS_NATIVE, MS_STACKS_PYTHON, MS_STACKS_FULL };

/* What caps a device; where several are set the smallest cap counts. */
struct ms_cap_rule {
    double fraction;      /* of the device's total, 0 < f <= 1; 0: not set */
    uint64_t limit_bytes; /* 0: not set */
};

/* What an output folder keeps. 0: without bound. */
struct ms_keep {
    uint64_t bytes, age_ns;
};

struct ms_options {
    struct ms_cap_rule cap_all;             /* devices without a rule of their own */
    struct ms_cap_rule cap[MS_DEVICES_MAX]; /* by CUDA ordinal */
    bool cap_of_run;                        /* MEMSHIM_CAP_OF=run */
    const char *group;                      /* MEMSHIM_GROUP, null where not set */
    const char *output_dir;                 /* MEMSHIM_OUTPUT */
    enum ms_log_level log;                  /* MEMSHIM_LOG */
    bool pool;                              /* MEMSHIM_POOL */
    enum ms_torch_mode torch;               /* MEMSHIM_TORCH; off where MEMSHIM_FRAMEWORKS is */
    uint32_t frameworks;                    /* MEMSHIM_FRAMEWORKS: 1 << enum ms_framework */
    const char *forward;                    /* MEMSHIM_FORWARD, null where not set */
    enum ms_stacks_mode stacks;             /* MEMSHIM_STACKS */
    uint32_t stack_depth;                   /* MEMSHIM_STACK_DEPTH, of either stack */
    uint64_t sample_bytes;                  /* MEMSHIM_SAMPLE_BYTES, 0: every allocation */
    bool views;                             /* MEMSHIM_VIEWS */
    bool spill;                             /* MEMSHIM_SPILL */
    uint64_t spill_limit_bytes;             /* MEMSHIM_SPILL_LIMIT, 0: from what the host has */
    bool trace;                             /* MEMSHIM_TRACE */
    uint64_t trace_limit_bytes;             /* MEMSHIM_TRACE_LIMIT */
    uint64_t report_wait_ns;                /* MEMSHIM_REPORT_WAIT */
    uint64_t wait_ns;                       /* MEMSHIM_WAIT_MS */
    double thresholds[3];                   /* MEMSHIM_THRESHOLDS, of the cap, rising */
    const char *run_id;                     /* MEMSHIM_RUN_ID, null where not set */
    uint64_t status_steps;                  /* MEMSHIM_STATUS_EVERY; 0: not by steps */
    uint64_t status_ns;                     /* the same; 0: not by time */
    uint32_t batch;                         /* MEMSHIM_BATCH, 0: not set; for the report alone */
    bool source;                            /* MEMSHIM_SOURCE; for the report alone */
    struct ms_keep keep;                    /* MEMSHIM_KEEP; for the report's process alone */
};

/* The longest wait in all, while some work completes now and then. */
static inline uint64_t ms_options_wait_most_ns(const struct ms_options *options)
{
    return 10 * options->wait_ns;
}

/* Read from the environment at the first call, warnings said then; the same object ever after. */
const struct ms_options *ms_options(void);

/* Whether that framework's adaptor is on. */
static inline bool ms_options_framework(enum ms_framework framework)
{
    return (ms_options()->frameworks >> framework & 1u) != 0;
}

/* At the first use of the driver: a child that was forked before reads its own environment. */
void ms_options_of_child(void);

/* The cap of a device of total_bytes under these options. *fraction gets the fraction that decided,
 * 0 where a limit did. */
uint64_t ms_options_cap_bytes(const struct ms_options *options, int device, uint64_t total_bytes,
                              double *fraction);

/* Called for every complaint: one sentence, without the prefix. */
typedef void (*ms_options_warn_t)(void *ctx, const char *sentence);

/* Pure: reads `environment` (NAME=value strings, null at the end; borrowed for as long as *out is
 * used) into *out. Every bad value and every unknown MEMSHIM_* name is passed to warn, and the
 * default kept. */
void ms_options_parse(char *const *environment, struct ms_options *out, ms_options_warn_t warn,
                      void *ctx);

/* Switches all of memshim off, above every option: MEMSHIM=off. */
#define MS_OPTIONS_SWITCH "MEMSHIM"

/* Whether the environment switches memshim off. Pure; safe before main. */
bool ms_options_switched_off(char *const *environment);

/* Complains of a NAME=value string that sets the switch to what it does not take. */
void ms_options_check_switch(const char *variable, ms_options_warn_t warn, void *ctx);

#define MS_OPTION_MEANT_BYTES 48

/* Calls `each` for each word where `allowed` is a list of words, as in "off, warn or info". False,
 * and no call, where it is none. Pure. */
bool ms_option_words(const char *allowed, void (*each)(void *ctx, const char *word, size_t length),
                     void *ctx);

/* A guess at what was meant by a value that the option does not take: a size that lacks its unit, a
 * fraction in percent, a word that is misspelt, or 1 and 0 for on and off. `allowed` is the option's
 * text. Empty where nothing can be guessed. Pure. */
void ms_options_meant(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES]);

typedef void (*ms_options_write_t)(void *ctx, const char *text);

/* The table: every option, its default, its values and its meaning, for people (plain) or as a
 * Markdown table. */
void ms_options_print(bool markdown, ms_options_write_t write, void *ctx);

/* The coverage table made from hooks.def, likewise. */
void ms_hooks_print(bool markdown, ms_options_write_t write, void *ctx);

/* NAME=value lines of the options that are set, for the trace, without MEMSHIM_RUN_ID, which
 * memshim sets itself. Returns text. */
char *ms_options_set_text(char *const *environment, char *text, size_t text_bytes);

/* "512MiB", "20GiB", "1.5 GB", "1048576" -> bytes. A fraction "0.95" -> (0, 1]. False, nothing
 * written, for anything else. */
bool ms_parse_bytes(const char *text, uint64_t *bytes);

/* "20GiB", "30d", "20GiB,30d": not empty. False where it is none of these; *keep is as it was. */
bool ms_parse_keep(const char *text, struct ms_keep *keep);
bool ms_parse_fraction(const char *text, double *fraction);

#endif
