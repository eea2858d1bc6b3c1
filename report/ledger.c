#include "report/ledger.h"

static const struct ms_ledger_row reasons[MS_CHARGE_REASON_COUNT] = {
    [MS_CHARGE_ALLOCATION] = {"forwarded", "allocations forwarded to the driver", 0, false},
    [MS_CHARGE_ARRAY] = {"arrays", "arrays, forwarded to the driver", 0, false},
    [MS_CHARGE_MANAGED] = {"managed", "managed memory, forwarded to the driver", 0, true},
    [MS_CHARGE_NCCL] = {"nccl", "NCCL's own, forwarded to the driver", 0, false},
    [MS_CHARGE_DRIVER_POOL] = {"driver_pools", "memory pools of the driver", 0, false},
    [MS_CHARGE_IPC] = {"ipc", "shared between processes, forwarded to the driver", 0, false},
    [MS_CHARGE_CONTEXT] = {"context", "CUDA context", 0, true},
    [MS_CHARGE_MODULE] = {"modules", "modules, loaded by the driver", 0, true},
    [MS_CHARGE_LAUNCH] = {"launches", "local memory and the like, taken at launches", 0, true},
    [MS_CHARGE_GRAPH] = {"graphs", "CUDA graphs, uploaded by the driver", 0, true},
    [MS_CHARGE_LIMIT] = {"limits", "stacks, heaps and buffers that limits ask for", 0, true},
};

struct list {
    struct ms_ledger_row *rows;
    size_t count;
};

static void add(struct list *list, struct ms_ledger_row row, uint64_t bytes)
{
    if (bytes > 0) {
        row.bytes = bytes;
        list->rows[list->count++] = row;
    }
}

struct ms_ledger_row ms_ledger_charged(const struct ms_counters *counters,
                                       enum ms_charge_reason reason)
{
    const uint64_t chunks =
        counters->owner_bytes[MS_OWNER_POOL] + counters->owner_bytes[MS_OWNER_APPLICATION];
    const bool under_tensors =
        reason == MS_CHARGE_ALLOCATION && counters->outside_tensors && chunks == 0;
    struct ms_ledger_row row = reasons[reason];

    row.bytes = under_tensors ? 0 : counters->reason_bytes[reason];
    return row;
}

size_t ms_ledger(const struct ms_counters *counters, struct ms_ledger_row rows[MS_LEDGER_ROWS])
{
    const uint64_t live = ms_counters_live(counters);
    const uint64_t reserved = ms_counters_reserved(counters);
    const uint64_t charged = ms_counters_charged(counters);
    struct list list = {rows, 0};

    add(&list, (struct ms_ledger_row){"tensors", "live tensors", 0, false}, counters->tensor_bytes);
    add(&list, (struct ms_ledger_row){"blocks", "live blocks that are no tensors", 0, false},
        counters->block_bytes);
    add(&list, (struct ms_ledger_row){"holes", "reserved, not live", 0, false},
        reserved > live ? reserved - live : 0);
    if (!counters->outside_tensors) {
        add(&list,
            (struct ms_ledger_row){"application", "chunks that the program made itself", 0, false},
            counters->owner_bytes[MS_OWNER_APPLICATION]);
    }
    for (int reason = 0; reason < MS_CHARGE_REASON_COUNT; reason++) {
        const struct ms_ledger_row row = ms_ledger_charged(counters, (enum ms_charge_reason)reason);

        add(&list, row, row.bytes);
    }
    add(&list, (struct ms_ledger_row){"free", "free below the cap", 0, false},
        counters->cap_bytes > charged ? counters->cap_bytes - charged : 0);
    return list.count;
}

#define EMERGENCY_PERCENT                                                  \
    97 /* of the cap (MEMSHIM_THRESHOLDS): from there on cold memory moves \
        */

uint64_t ms_cap_without_spill(const struct ms_aggregate *aggregate)
{
    const struct ms_counters *peak = ms_aggregate_at_peak(aggregate);
    uint64_t bytes = ms_aggregate_peak_live(aggregate).live_bytes +
                     peak->owner_bytes[MS_OWNER_FORWARDED] + peak->owner_bytes[MS_OWNER_CONTEXT];

    if (!peak->outside_tensors) {
        bytes += peak->owner_bytes[MS_OWNER_APPLICATION];
    }
    return bytes / EMERGENCY_PERCENT * 100;
}
