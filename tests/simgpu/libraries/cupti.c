/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of CUPTI's double that must return something. The device has no activity: switching
 * anything on succeeds, and no record ever comes. (The wheel's own library looks for private tables
 * of the driver, and without them calls itself forever.) */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* CUPTI_API_VERSION in cupti_version.h. A double that is made for a program's own libraries
 * replaces this by their version. */
__attribute__((weak)) const int simcupti_version = 130202;

#define EXPORT __attribute__((visibility("default")))

/* Values of CUptiResult, as in cupti_result.h. */
typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
} result_t;

EXPORT result_t cuptiGetVersion(uint32_t *version)
{
    if (!version) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *version = simcupti_version;
    return CUPTI_SUCCESS;
}

EXPORT result_t cuptiSubscribe(void **subscriber, void *callback, void *argument)
{
    static char only_one;
    (void)callback;
    (void)argument;
    if (!subscriber) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *subscriber = &only_one;
    return CUPTI_SUCCESS;
}

EXPORT result_t cuptiGetResultString(result_t result, const char **text)
{
    if (!text) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR of the simulated GPU";
    return CUPTI_SUCCESS;
}

EXPORT result_t cuptiGetCallbackName(int domain, uint32_t id, const char **name)
{
    (void)domain;
    (void)id;
    if (!name) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *name = "";
    return CUPTI_SUCCESS;
}

/* "CUPTI_ERROR_MAX_LIMIT_REACHED if no more records available in the buffer" (cupti_activity.h). */
EXPORT result_t cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record)
{
    (void)buffer;
    (void)valid_bytes;
    if (!record) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *record = NULL;
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
}

EXPORT result_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    if (!dropped) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    *dropped = 0;
    return CUPTI_SUCCESS;
}

EXPORT result_t cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last)
{
    (void)kind;
    if (last) {
        *last = 0;
    }
    return CUPTI_SUCCESS;
}
