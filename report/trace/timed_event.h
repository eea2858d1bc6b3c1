/* SPDX-License-Identifier: Apache-2.0 */
/* An event with its time: the entries of a trace's tail (format.h), before they are packed. */
#ifndef MEMSHIM_REPORT_TRACE_TIMED_EVENT_H
#define MEMSHIM_REPORT_TRACE_TIMED_EVENT_H

#include <stdint.h>

#include "allocator/base/event.h"

struct ms_timed_event {
    uint64_t time_ns; /* since the trace began, a multiple of MS_TIME_UNIT_NS */
    struct ms_event event;
};

#endif
