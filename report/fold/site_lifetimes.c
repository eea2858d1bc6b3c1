/* SPDX-License-Identifier: Apache-2.0 */
/* Classifies freed memory by the backward passes that it lived through. */
#include "report/fold/site_lifetimes.h"

#include <string.h>

#define FEW_PASSES 4u

enum ms_lifetime ms_lifetime_of(uint32_t born_phase, uint32_t phase, bool in_pass)
{
    if (born_phase % 2 == 1) {
        if (phase % 2 == 0 || !in_pass) {
            return MS_LIFETIME_OUTLIVED;
        }
        return born_phase == phase ? MS_LIFETIME_SPENT : MS_LIFETIME_REUSED;
    }
    if (born_phase == phase) {
        return MS_LIFETIME_MOMENT;
    }
    if (born_phase + 1 == phase) {
        return MS_LIFETIME_BACKWARD;
    }
    return (phase - born_phase) / 2 > FEW_PASSES ? MS_LIFETIME_KEPT : MS_LIFETIME_CROSSED;
}

enum ms_lifetime ms_lifetime_at_end(uint32_t born_phase, uint32_t phase, bool in_pass,
                                    bool ended_in_pass)
{
    if (born_phase % 2 == 1) {
        return ms_lifetime_of(born_phase, phase, in_pass);
    }
    return born_phase + (phase % 2 == 1 && ended_in_pass) == phase ? MS_LIFETIME_OPEN
                                                                   : MS_LIFETIME_KEPT;
}

void ms_lifetimes_add(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime, uint64_t bytes)
{
    lifetimes->bytes[lifetime] += bytes;
}

void ms_lifetimes_add_at_peak(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime,
                              const struct ms_past *past, uint64_t epoch)
{
    if (epoch == 0 || past->born_epoch >= epoch) {
        return;
    }
    if (lifetimes->at_peak[epoch & 1].epoch != epoch) {
        memset(&lifetimes->at_peak[epoch & 1], 0, sizeof(lifetimes->at_peak[0]));
        lifetimes->at_peak[epoch & 1].epoch = epoch;
    }
    lifetimes->at_peak[epoch & 1].bytes[lifetime] += past->bytes;
}
