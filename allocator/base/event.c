/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of each kind's properties, from events.def. */
#include "allocator/base/event.h"

const uint8_t ms_event_fields[MS_EVENT_KIND_COUNT] = {
#define MS_EVENT(number, name, scope, fields, sums) [number] = (fields),
#include "allocator/base/events.def"
#undef MS_EVENT
};

const char *const ms_event_names[MS_EVENT_KIND_COUNT] = {
    [MS_EVENT_NONE] = "NONE",
#define MS_EVENT(number, name, scope, fields, sums) [number] = #name,
#include "allocator/base/events.def"
#undef MS_EVENT
};

/* The numbers in events.def have no gaps and no duplicates. */
enum {
#define MS_EVENT(number, name, scope, fields, sums) ROW_OF_##name,
#include "allocator/base/events.def"
#undef MS_EVENT
    ROWS
};
_Static_assert(ROWS + 1 == MS_EVENT_KIND_COUNT, "a number is missing, or the last row is not last");
#define MS_EVENT(number, name, scope, fields, sums) \
    _Static_assert(ROW_OF_##name + 1 == (number), "the numbers of events.def are in a row");
#include "allocator/base/events.def"
#undef MS_EVENT

const char *ms_threshold_name(uint64_t state)
{
    static const char *const names[] = {"normal", "warning", "critical", "emergency"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}
