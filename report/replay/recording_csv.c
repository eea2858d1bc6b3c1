/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a recording's CSV. recording_csv_read.c reads one, recording_csv_write.c writes one.
 */
#include "report/replay/recording_csv.h"

const char *const ms_csv_column_names[MS_CSV_COLUMNS] = {"time_us", "op",   "id",  "bytes",
                                                         "stream",  "site", "addr"};

enum {
    ID = MS_CSV_BIT(MS_CSV_ID),
    BYTES = MS_CSV_BIT(MS_CSV_BYTES),
    ADDR = MS_CSV_BIT(MS_CSV_ADDR)
};

const struct ms_csv_op_row ms_csv_ops[MS_CSV_OPS] = {
    [MS_CSV_ALLOC] = {"alloc", ID | BYTES},
    [MS_CSV_FREE] = {"free", ID},
    [MS_CSV_SEGMENT] = {"segment", ID | BYTES | ADDR},
    [MS_CSV_SEGMENT_FREE] = {"segment_free", ID},
    [MS_CSV_TENSOR_ALLOC] = {"born", ID | BYTES | ADDR},
    [MS_CSV_TENSOR_FREE] = {"died", ID},
    [MS_CSV_RESERVE] = {"reserve", ID | BYTES | ADDR},
    [MS_CSV_UNRESERVE] = {"unreserve", ID},
    [MS_CSV_MAP] = {"map", ID | BYTES | ADDR},
    [MS_CSV_UNMAP] = {"unmap", BYTES | ADDR},
    [MS_CSV_CACHED] = {"cached", BYTES | ADDR},
    [MS_CSV_FREEZE] = {"freeze", ADDR},
    [MS_CSV_CHARGE] = {"charge", BYTES},
    [MS_CSV_DISCHARGE] = {"discharge", BYTES},
    [MS_CSV_STEP] = {"step", 0},
    [MS_CSV_REFUSED] = {"refused", BYTES},
    [MS_CSV_FATAL] = {"fatal", BYTES},
};
