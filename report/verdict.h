/* The one sentence that says why an allocation failed, decided from numbers alone. */
#ifndef MEMSHIM_REPORT_VERDICT_H
#define MEMSHIM_REPORT_VERDICT_H

#include <stddef.h>
#include <stdint.h>

enum ms_verdict {
    MS_VERDICT_DEMAND,        /* live bytes and the request exceed the device */
    MS_VERDICT_CAP,           /* it would have fitted the device without the cap */
    MS_VERDICT_FRAGMENTATION, /* free bytes enough, but in ranges that could not be repaired (where
                                 that and the cap both would explain it: more than the cap takes) */
    MS_VERDICT_OTHER_PROCESS, /* it would have fitted without what other processes hold */
    MS_VERDICT_SPILL_LIMIT, /* more of what is cold could have gone to the host, were it allowed */
    MS_VERDICT_COUNT
};

enum ms_oom_source {
    MS_OOM_DRIVER, /* a call of the driver interface was refused */
    MS_OOM_TORCH   /* PyTorch raised its OutOfMemoryError */
};

#define MS_SENTENCE_BYTES 512

/* The state at the moment of the failure. All in bytes. */
struct ms_oom_state {
    uint64_t requested_bytes;
    uint64_t refused_bytes; /* MS_OOM_TORCH: of the driver call that was refused before; 0: none */
    uint64_t cap_bytes, device_total_bytes;
    uint64_t charged_bytes; /* = pool + application + forwarded + context */
    uint64_t pool_bytes, application_bytes, forwarded_bytes, context_bytes;
    uint64_t live_bytes;          /* blocks, arenas by their tensors */
    uint64_t reclaimable_bytes;   /* backed and free, could be given elsewhere */
    uint64_t pending_bytes;       /* freed, waiting for queued work */
    uint64_t largest_free_bytes;  /* largest single range that was free */
    uint64_t driver_free_bytes;   /* what the driver itself says is free */
    uint64_t other_process_bytes; /* device total - driver free - charged */
    uint64_t spill_limit_bytes;   /* most live memory that may lie on the host; 0: none may */
    uint64_t spill_left_bytes;    /* for how large a request there was still room there */
    uint32_t site;
    uint8_t source;         /* enum ms_oom_source */
    uint8_t fraction_known; /* whether cap came from a fraction */
    double fraction;
};

/* Decides and writes the sentence (sentence_bytes long, always terminated; MS_SENTENCE_BYTES are
 * enough): "OUT OF MEMORY: asked for ..., ... short of the cap (...). demand: ...". short_bytes: by
 * how much the request did not fit; 0 where the bytes were there, but not where they were needed.
 * Pure. */
enum ms_verdict ms_verdict_decide(const struct ms_oom_state *state, uint64_t *short_bytes,
                                  char *sentence, size_t sentence_bytes);

/* The two halves of the sentence: what happened ("asked for ..., ... short of ..."), and why
 * ("demand: ..."). Either may be null. */
enum ms_verdict ms_verdict_parts(const struct ms_oom_state *state, uint64_t *short_bytes,
                                 char *what, size_t what_bytes, char *why, size_t why_bytes);

const char *ms_verdict_name(enum ms_verdict verdict); /* "demand", "cap", ... */

/* "394.0 MiB", "11.72 GiB", "512 B" into text (at least 24 bytes); returns text. */
char *ms_bytes_text(uint64_t bytes, char *text, size_t text_bytes);

#endif
