/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of one device: bytes charged, bytes earmarked, and the limit that both together never
 * pass. The limit is the cap, or the bound if that is less: what the device has room for beside the
 * memory of others. Earmarked bytes are memory that nobody holds yet and nobody else may have: the
 * pool keeps them for the holes of arenas, which a framework may fill again without asking.
 *
 * If several processes share a cap, each borrows its part from a lender, in steps. Charged and
 * earmarked bytes are never more than the borrowed ones.
 *
 * Reserve in the budget first, call the driver second, give back on failure. Every function is
 * lock-free, may be called from any thread, and does not block unless the lender does. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_BUDGET_H
#define MEMSHIM_ALLOCATOR_DEVICE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"

/* Lends parts of a cap. Called by any thread, under any lock under which the budget is used. */
struct ms_budget_lender {
    void *ctx;
    uint64_t step_bytes; /* borrow this much at once, if there is so much */
    /* Lends from least_bytes up to most_bytes; 0: there is less than least_bytes. */
    uint64_t (*borrow)(void *ctx, uint64_t least_bytes, uint64_t most_bytes);
    /* Books imposed bytes as borrowed, even if the lender has none left. */
    void (*impose)(void *ctx, uint64_t bytes);
    void (*give)(void *ctx, uint64_t bytes);
    uint64_t (*free_bytes)(void *ctx);
    void (*tell)(void *ctx, uint64_t committed_bytes); /* committed_bytes have changed */
};

struct ms_budget {
    _Atomic uint64_t cap_bytes;
    _Atomic uint64_t bound_bytes; /* room for this process on the device, as observed; UINT64_MAX:
                                     no less than the cap is known */
    _Atomic uint64_t committed_bytes; /* charged and earmarked; <= cap_bytes except by
                                         ms_budget_impose */
    _Atomic uint64_t charged_bytes;   /* the sum of by_owner */
    _Atomic uint64_t earmarked_bytes;
    _Atomic uint64_t by_owner_bytes[MS_OWNER_COUNT];
    _Atomic uint64_t peak_charged_bytes;
    _Atomic uint64_t borrowed_bytes; /* >= committed_bytes, except while a charge is under way */
    const struct ms_budget_lender *_Atomic lender; /* null: nothing is borrowed */
};

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes);

/* Makes this lender the source of all bytes. It outlives the budget. To be called before the first
 * charge. */
void ms_budget_borrow_from(struct ms_budget *budget, const struct ms_budget_lender *lender);

/* Gives bytes that are not in use back to the lender, except keep_bytes. Returns how many. */
uint64_t ms_budget_return(struct ms_budget *budget, uint64_t keep_bytes);

/* Stops asking the lender: in a forked child, which charges nothing. */
void ms_budget_leave_lender(struct ms_budget *budget);

/* Sets the bound: the room that the device turned out to have for this process, or UINT64_MAX for
 * at least the cap. If more is charged and earmarked, every charge fails until enough was given
 * back. */
void ms_budget_bind(struct ms_budget *budget, uint64_t bound_bytes);
/* The smaller of cap and bound. */
uint64_t ms_budget_limit_bytes(const struct ms_budget *budget);

/* True, and charged, if charged + earmarked stays <= the limit; otherwise false, and nothing
 * changed. */
bool ms_budget_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Charges what the driver has already taken by itself, even beyond the cap: there was no call of
 * the application's to refuse. The overshoot makes every later charge fail. */
void ms_budget_impose(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Gives back charged or imposed bytes; at most what the owner has charged. */
void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Earmarks bytes under the condition of ms_budget_charge; gives earmarked bytes back. */
bool ms_budget_earmark(struct ms_budget *budget, uint64_t bytes);
void ms_budget_release_earmark(struct ms_budget *budget, uint64_t bytes);

/* Turns earmarked bytes into charged ones, and back, in one step: nobody else can take them in
 * between. False, and nothing changed: imposed bytes or another process took the room meanwhile. */
bool ms_budget_charge_earmarked(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);
void ms_budget_earmark_charged(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* limit - charged - earmarked, or 0 beyond the limit. With a lender: at most what the lender has,
 * plus borrowed bytes that are not in use. */
uint64_t ms_budget_free_bytes(const struct ms_budget *budget);

/* Bytes to give back before a charge of `bytes` fits, any overshoot included. */
uint64_t ms_budget_lacking_bytes(const struct ms_budget *budget, uint64_t bytes);

#endif
