/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a dry run, for people and for programs. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fit/batch_foretell.h"
#include "report/fit/cards.h"
#include "report/model/headroom.h"
#include "report/model/kinds.h"

#define MS_DRY_CARDS 32u

/* The largest batch on a card, in parts of this run's. */
struct ms_dry_batch {
    double factor;  /* 0: unknown, or nothing fits */
    bool unbounded; /* more than the largest evaluated one */
};

/* The largest tensor that is no part of the model: it may follow the data. */
struct ms_dry_tensor {
    uint64_t bytes; /* 0: none is known */
    char line[256]; /* that asked for it */
    enum ms_kind kind;
    uint64_t step; /* from 1; 0: before the first, or unknown */
    /* Of the whole steps in which that line asked, the one with the least: its largest tensor. Less
     * than `bytes` where steps differ. 0: unknown, as where there was none. */
    uint64_t least_bytes, least_step;
};

/* Whether the sizes that the program asks for differ from step to step. */
bool ms_dry_tensor_varies(const struct ms_dry_tensor *tensor);

/* One process with a device: the memory of its main device. */
struct ms_dry_rank {
    char folder[256];         /* of its trace, the last component */
    int32_t rank;             /* -1: none */
    uint64_t world;           /* of how many; 0: unknown */
    uint64_t steps;           /* of the optimizer; 0: none was seen */
    bool validates;           /* a validation was seen to its end */
    bool is_loop;             /* they are turns of a loop, and no backward pass was seen */
    bool has_state;           /* an optimizer made its state */
    char optimizer_line[256]; /* that calls the optimizer; empty: unknown */
    bool died_of_oom;
    uint64_t peak_live_bytes, peak_reserved_bytes, peak_charged_bytes;
    uint64_t peak_tensor_bytes;         /* PyTorch's max_memory_allocated; 0: it reported none */
    uint64_t nccl_bytes;                /* NCCL's own, from a table; charged at the peak */
    uint64_t kind_bytes[MS_KIND_COUNT]; /* of live memory at the peak */
    bool kinds_known;
    uint64_t peak_step;     /* from 1; 0: before the first, or unknown */
    struct ms_buffer holds; /* lines: the largest holders at the peak */
    struct ms_dry_tensor largest;
    struct ms_headroom headroom;
    struct ms_recording *course; /* null: not kept (course.h) */
    bool replayed;               /* needs and fits are known */
    struct ms_card_needs needs;
    struct ms_card_fit fits[MS_DRY_CARDS];
    struct ms_dry_batch batches[MS_DRY_CARDS][MS_GROUND_COUNT];
};

/* One place where the host read device memory that the host never wrote: kernels would have
 * computed it. reader and type: as in memshim_value_read (shim/memshim.h); also reader 3: a flag
 * that something went wrong. */
struct ms_dry_value {
    char line[256];
    unsigned reader, type;
    uint64_t bytes, count; /* of each read; over all processes */
};

/* The most that a call of cuDNN took, by a bound: of recurrent networks, and of convolutions.
 * 0: there was none. missed_bytes: what a convolution would have taken, had there been room. */
struct ms_dry_cudnn {
    uint64_t work_bytes, reserve_bytes;
    uint64_t convolution_bytes, missed_bytes;
};

/* What a process asked for in vain. */
struct ms_dry_asked {
    int device;     /* the highest; -1: none */
    char host[256]; /* empty: none */
    char hub[256];  /* a repository of a hub, as OWNER/NAME; empty: none */
};

enum ms_dry_end {
    MS_DRY_STOPPED, /* everything it had to see was seen */
    MS_DRY_ENDED,   /* it ended by itself, normally */
    MS_DRY_FAILED,  /* it ended by itself, with another status or by a signal */
    MS_DRY_INTERRUPTED,
    MS_DRY_HOST_FULL, /* it took more of this machine's memory than allowed */
};

struct ms_dry_answer {
    const struct ms_card *card;         /* the simulated card */
    struct ms_card cards[MS_DRY_CARDS]; /* the cards of the answer: the simulated one first */
    size_t card_count;
    uint64_t devices, wanted_steps; /* 0: until state was made, and one step more */
    bool wants_validation;          /* it was to be stopped only after one */
    bool keeps_courses;             /* of the ranks, to foretell other batches */
    uint64_t world;                 /* the number of ranks, of which one ran alone; 0: all ran */
    enum ms_dry_end end;
    int status; /* of the command, if it ended by itself; -N: by signal N */
    bool ample; /* it did not fit the simulated card, and ran again with enough memory */
    uint64_t elapsed_ns;
    const char *version; /* memshim's, for the line on comparisons */
    /* This machine's memory: the most of one process, the most of all at a time, and their limit.
     * 0: unknown. */
    uint64_t host_bytes, host_all_bytes, host_limit_bytes;
    uint64_t host_written_bytes; /* of all: in files of the private layer */
    uint64_t layer_full_bytes;   /* that layer's size, if it was full; 0: it was not */
    const char *report;          /* the folder with its report */
    struct ms_buffer ranks;      /* struct ms_dry_rank */
    struct ms_dry_asked asked;
    struct ms_dry_cudnn cudnn;
    bool random;  /* such reads get random values, else zeros */
    bool is_late; /* the host learned of the end of work only when it waited for it, else at once */
    const struct ms_dry_answer *late; /* the same run with is_late; null: there is none */
    struct ms_buffer values;          /* struct ms_dry_value, the most frequent reads first */
};

static inline size_t ms_dry_value_count(const struct ms_dry_answer *answer)
{
    return answer->values.bytes / sizeof(struct ms_dry_value);
}

static inline struct ms_dry_value *ms_dry_value_at(const struct ms_dry_answer *answer, size_t index)
{
    return (struct ms_dry_value *)answer->values.at + index;
}

static inline size_t ms_dry_rank_count(const struct ms_dry_answer *answer)
{
    return answer->ranks.bytes / sizeof(struct ms_dry_rank);
}

static inline struct ms_dry_rank *ms_dry_rank_at(const struct ms_dry_answer *answer, size_t index)
{
    return (struct ms_dry_rank *)answer->ranks.at + index;
}

/* The rank with the most memory: figures of a single rank are of this one. Null: there is none. */
const struct ms_dry_rank *ms_dry_largest_rank(const struct ms_dry_answer *answer);

/* A rank that is not the one that was to run alone, or is one of another number: the command
 * started a launcher of its own. Null: there is none. */
const struct ms_dry_rank *ms_dry_other_rank(const struct ms_dry_answer *answer);

/* A card's line over all ranks: a run fits if all of them do. */
struct ms_dry_card_row {
    struct ms_card_fit fit;
    struct ms_dry_batch batches[MS_GROUND_COUNT];
};
struct ms_dry_card_row ms_dry_card_row(const struct ms_dry_answer *answer, size_t card);

void ms_dry_run_text(const struct ms_dry_answer *answer, struct ms_buffer *out);
void ms_dry_run_json(const struct ms_dry_answer *answer, struct ms_buffer *out);

/* The cards alone, as in that (`cards`), for the pages of the run (MS_PAGE_CARDS). */
void ms_dry_cards_json(const struct ms_dry_answer *answer, struct ms_buffer *out);

/* ---- several batches ---- */

#define MS_DRY_BATCHES 16u

struct ms_dry_batch_row {
    uint64_t batch;
    bool interrupted; /* somebody ended it; no further one was run */
    bool stopped;     /* before its own end, because everything it had to see was seen */
    bool known;       /* it ran and could be replayed: the fields below are valid */
    uint64_t steps, peak_live_bytes;
    struct ms_dry_tensor largest;          /* of all ranks */
    uint64_t needs_bytes[MS_GROUND_COUNT]; /* of the largest rank */
    struct ms_card_fit fit;                /* of the simulated card */
};

struct ms_dry_batches {
    const struct ms_card *card;
    const char *version; /* memshim's */
    const char *what;    /* the name of the variable or the argument */
    bool wanted;         /* the search was for the largest batch, with PyTorch alone */
    bool follows;        /* else what it needs does not follow the batch: there is no largest */
    struct ms_batch_contrast contrast; /* that shows it does not */
    struct ms_batch_contrast level;    /* of the largest batches, if they need the same; else 0 */
    uint64_t found;                    /* the largest that fits; 0: none known, or none is */
    uint64_t too_big; /* does not fit; confirmed if it is found + 1; 0: none known, or none is */
    const char *report;
    size_t count;
    struct ms_dry_batch_row rows[MS_DRY_BATCHES];
};

void ms_dry_batches_text(const struct ms_dry_batches *batches, struct ms_buffer *out);
void ms_dry_batches_json(const struct ms_dry_batches *batches, struct ms_buffer *out);

#endif
