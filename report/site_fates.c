#include "report/site_fates.h"

#include <string.h>

#define FEW_PASSES 4u

enum ms_fate ms_fate_of(uint32_t born_phase, uint32_t phase, bool in_pass, bool at_end)
{
    if (born_phase % 2 == 1) {
        if (phase % 2 == 0 || !in_pass) {
            return MS_FATE_OUTLIVED;
        }
        return born_phase == phase ? MS_FATE_SPENT : MS_FATE_REUSED;
    }
    if (at_end) {
        return born_phase == phase ? MS_FATE_OPEN : MS_FATE_KEPT;
    }
    if (born_phase == phase) {
        return MS_FATE_MOMENT;
    }
    if (born_phase + 1 == phase) {
        return MS_FATE_BACKWARD;
    }
    return (phase - born_phase) / 2 > FEW_PASSES ? MS_FATE_KEPT : MS_FATE_CROSSED;
}

void ms_fates_add(struct ms_fates *fates, enum ms_fate fate, uint64_t bytes)
{
    fates->bytes[fate] += bytes;
}

void ms_fates_add_at_peak(struct ms_fates *fates, enum ms_fate fate, const struct ms_past *past,
                          uint64_t epoch)
{
    if (epoch == 0 || past->born_epoch >= epoch) {
        return;
    }
    if (fates->at_peak[epoch & 1].epoch != epoch) {
        memset(&fates->at_peak[epoch & 1], 0, sizeof(fates->at_peak[0]));
        fates->at_peak[epoch & 1].epoch = epoch;
    }
    fates->at_peak[epoch & 1].bytes[fate] += past->bytes;
}
