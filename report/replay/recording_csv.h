/* SPDX-License-Identifier: Apache-2.0 */
/* The columns and operations of a recording's CSV, and the fields that each operation needs.
 * docs/replay.md describes each. */
#ifndef MEMSHIM_REPORT_REPLAY_RECORDING_CSV_H
#define MEMSHIM_REPORT_REPLAY_RECORDING_CSV_H

#include "report/replay/recording.h"

#define MS_CSV_HEADER_ADDR MS_CSV_HEADER ",addr"

enum ms_csv_column {
    MS_CSV_TIME,
    MS_CSV_OP,
    MS_CSV_ID,
    MS_CSV_BYTES,
    MS_CSV_STREAM,
    MS_CSV_SITE,
    MS_CSV_ADDR,
    MS_CSV_COLUMNS
};

#define MS_CSV_BIT(column) (1u << (column))

enum ms_csv_op {
    MS_CSV_ALLOC,
    MS_CSV_FREE,
    MS_CSV_SEGMENT,
    MS_CSV_SEGMENT_FREE,
    MS_CSV_TENSOR_ALLOC,
    MS_CSV_TENSOR_FREE,
    MS_CSV_RESERVE,
    MS_CSV_UNRESERVE,
    MS_CSV_MAP,
    MS_CSV_UNMAP,
    MS_CSV_CACHED,
    MS_CSV_FREEZE,
    MS_CSV_CHARGE,
    MS_CSV_DISCHARGE,
    MS_CSV_STEP,
    MS_CSV_REFUSED,
    MS_CSV_FATAL,
    MS_CSV_OPS
};

struct ms_csv_op_row {
    const char *name;
    unsigned needs; /* MS_CSV_BIT of each required field */
};

extern const struct ms_csv_op_row ms_csv_ops[MS_CSV_OPS];
extern const char *const ms_csv_column_names[MS_CSV_COLUMNS];

#endif
