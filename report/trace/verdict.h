/* SPDX-License-Identifier: Apache-2.0 */
/* The one sentence that says why an allocation failed, decided from numbers alone. */
#ifndef MEMSHIM_REPORT_TRACE_VERDICT_H
#define MEMSHIM_REPORT_TRACE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ms_verdict {
    MS_VERDICT_DEMAND,        /* live bytes and the request exceed the device */
    MS_VERDICT_CAP,           /* they fit the device, not the cap */
    MS_VERDICT_FRAGMENTATION, /* they fit, but free bytes lay where they could not serve */
    MS_VERDICT_OTHER_PROCESS, /* they fit the device, but not the part that other processes leave */
    MS_VERDICT_SPILL_LIMIT,   /* more cold memory could have gone to the host, had the limit allowed
                                 it */
    MS_VERDICT_NOT_DEVICE,    /* they fit, and free bytes could have served: the device lacked
                                 nothing */
    MS_VERDICT_DRIVER_LIMIT,  /* the driver itself allows this process less than the cap */
    MS_VERDICT_GROWTH,        /* a call site kept more in every step; only the report finds it */
    MS_VERDICT_COUNT
};

enum ms_oom_source {
    MS_OOM_DRIVER, /* a call of the driver interface was refused */
    MS_OOM_TORCH,  /* PyTorch raised its OutOfMemoryError */
    MS_OOM_HOST    /* page-locked host memory was refused; since version 3.5 of the format */
};

#define MS_SENTENCE_BYTES 768

/* Another process with memory on the device. */
#define MS_OTHERS_NAMED     4
#define MS_OTHER_NAME_BYTES 16

struct ms_other_process {
    uint64_t bytes;
    uint64_t pid;
    char name[MS_OTHER_NAME_BYTES]; /* as in /proc; empty: unknown */
};

/* From NVML's list. */
struct ms_others {
    uint64_t bytes; /* of all other processes */
    uint32_t count;
    uint32_t known; /* 0: there was no list, or this process was not in it */
    struct ms_other_process named[MS_OTHERS_NAMED]; /* the largest first, at most `count` of them */
};

/* A cap that several processes share (MEMSHIM_CAP_OF=run, MEMSHIM_GROUP). */
struct ms_shared_cap {
    uint64_t bytes;                  /* the whole cap; 0: it is this process's own */
    uint64_t others_bytes;           /* the part of it that other processes hold */
    uint64_t others;                 /* their number */
    struct ms_other_process largest; /* of them */
    int64_t largest_rank;            /* -1: unknown */
};

/* Why free ranges could not be used for the request. */
enum ms_pinned_by {
    MS_PINNED_BY_NOTHING,   /* unknown */
    MS_PINNED_BY_TORCH_OFF, /* MEMSHIM_TORCH=off: PyTorch alone manages the free memory in its
                               segments */
    MS_PINNED_BY_POOL_OFF,  /* MEMSHIM_POOL=off */
    MS_PINNED_BY_CAPTURE,   /* arenas that a CUDA graph replays into; or a capture was running */
    MS_PINNED_BY_NO_HOST,   /* no host memory to cover them */
    MS_PINNED_BY_TENSORS,   /* ranges smaller than a granule, beside live tensors */
    MS_PINNED_BY_WORK,      /* the freed bytes would be enough, but queued work may still use
                               them */
    MS_PINNED_BY_OWNER,     /* memory of an allocator that may hand it out without reporting */
    MS_PINNED_BY_COUNT
};

/* A limit that was not memshim's. */
enum ms_limited_by {
    MS_LIMITED_BY_NOTHING,
    MS_LIMITED_BY_CGROUP, /* the driver's, for this control group (dmem.max) */
    MS_LIMITED_BY_MPS,    /* the driver's, for an MPS client (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) */
    MS_LIMITED_BY_TORCH_CONF, /* PyTorch's own (PYTORCH_ALLOC_CONF=per_process_memory_fraction:) */
    MS_LIMITED_BY_COUNT
};

/* Why no more live memory went to the host. */
enum ms_unspilled_by {
    MS_UNSPILLED_UNKNOWN,   /* or nothing prevented it */
    MS_UNSPILLED_OFF,       /* MEMSHIM_SPILL=off */
    MS_UNSPILLED_NO_ACCESS, /* the device cannot reach host memory for spilling */
    MS_UNSPILLED_CAPTURE,   /* a stream captured, so nothing may move */
    MS_UNSPILLED_BUSY,      /* the device did not stand still in time */
    MS_UNSPILLED_NO_HOST,   /* the host had no memory for it */
    MS_UNSPILLED_PINNED,    /* no more live memory may move */
    MS_UNSPILLED_COUNT
};

enum ms_grad_mode {
    MS_GRAD_UNKNOWN, /* no PyTorch, or an older trace */
    MS_GRAD_OFF,     /* as under torch.no_grad() */
    MS_GRAD_ON
};

/* The state at the moment of the failure. All in bytes. */
struct ms_oom_state {
    uint64_t requested_bytes;
    uint64_t refused_bytes; /* MS_OOM_TORCH: of the refused driver call before it; 0: none */
    uint64_t cap_bytes, device_total_bytes;
    uint64_t charged_bytes; /* = pool + application + forwarded + context */
    uint64_t pool_bytes, application_bytes, forwarded_bytes, context_bytes;
    uint64_t live_bytes;          /* blocks, arenas by their tensors */
    uint64_t reclaimable_bytes;   /* backed and free, usable for other requests */
    uint64_t pending_bytes;       /* freed, waiting for queued work */
    uint64_t largest_free_bytes;  /* the largest single free range */
    uint64_t driver_free_bytes;   /* free according to the driver */
    uint64_t other_process_bytes; /* device total - driver free - charged: memory of others, whoever
                                     they are */
    struct ms_others others;      /* the processes that hold it */
    uint64_t spill_limit_bytes;   /* most live memory allowed on the host; 0: none */
    uint64_t spill_left_bytes;    /* the largest request that still had room there */
    uint32_t site;
    uint8_t source;            /* enum ms_oom_source */
    uint8_t fraction_known;    /* whether the cap came from a fraction */
    uint8_t driver_free_known; /* 0: driver_free_bytes is computed from other processes' bytes */
    uint8_t pinned_by;         /* enum ms_pinned_by: why free bytes could not be used */
    double fraction;
    /* Since version 3.3 of the format. */
    uint64_t limit_bytes;      /* of that other limit; 0: none known */
    uint64_t limit_used_bytes; /* used by the whole group, counted against the limit; 0: unknown */
    uint64_t limited_by;       /* enum ms_limited_by */
    /* Since version 3.4. */
    uint64_t terms_known;   /* 0: an older trace, without the fields below */
    uint64_t fixed_bytes;   /* charged, and in the way wherever the rest lies: context, modules,
                               forwarded and managed memory, the program's own chunks */
    uint64_t spilled_bytes; /* the part of live_bytes on the host */
    uint64_t movable_bytes; /* live bytes on the device that could still move to the host without
                               the limit */
    uint64_t unspilled_by;  /* enum ms_unspilled_by */
    /* Since version 3.9. */
    struct ms_shared_cap shared; /* then cap_bytes is the part that the others leave */
    /* Since version 3.10. MS_OOM_TORCH: the driver's answer (a CUresult other than out of memory)
     * to this thread's last call for memory; 0: there was none. */
    uint64_t driver_error;
    /* Since version 3.12. */
    uint64_t grad_mode; /* enum ms_grad_mode, of the thread that asked */
};

/* Decides and writes the sentence (sentence_bytes long, always terminated; MS_SENTENCE_BYTES are
 * enough): "OUT OF MEMORY: asked for ..., ... short of the cap (...). demand: ...". short_bytes: by
 * how much the request did not fit; if it did fit, the bytes it lacked beside free bytes that could
 * not serve; 0: the device lacked nothing. Pure. */
enum ms_verdict ms_verdict_decide(const struct ms_oom_state *state, uint64_t *short_bytes,
                                  char *sentence, size_t sentence_bytes);

/* The two parts of the sentence: what happened ("asked for ..., ... short of ..."), and why
 * ("demand: ..."). Either may be null. */
enum ms_verdict ms_verdict_parts(const struct ms_oom_state *state, uint64_t *short_bytes,
                                 char *what, size_t what_bytes, char *why, size_t why_bytes);

/* How the short bytes come about: "512.0 MiB asked for - 100.0 MiB free = 412.0 MiB"; empty if none
 * were short. */
void ms_verdict_sum_text(const struct ms_oom_state *state, char *text, size_t text_bytes);

/* Why no more live memory went to the host: a clause. Null: unknown. */
const char *ms_unspilled_text(const struct ms_oom_state *state);

/* Whether a shared cap would have allowed the memory in use and the request, without the others'
 * part. */
bool ms_verdict_of_shared_cap(const struct ms_oom_state *state);

const char *ms_verdict_name(enum ms_verdict verdict); /* "demand", "cap", ... */

#endif
