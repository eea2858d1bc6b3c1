/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: functions that do not depend on the meaning of stream 0. */
#include "runtime.h"

RT_API(cudaStreamCreate, (cudaStream_t * stream))
{
    return RT_CALL(cuStreamCreate, stream, CU_STREAM_DEFAULT);
}

RT_API(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags))
{
    return RT_CALL(cuStreamCreate, stream, flags);
}

RT_API(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority))
{
    return RT_CALL(cuStreamCreateWithPriority, stream, flags, priority);
}

RT_API(cudaStreamDestroy, (cudaStream_t stream))
{
    return RT_CALL(cuStreamDestroy, stream);
}

RT_API(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode))
{
    return RT_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}

RT_API(cudaEventCreate, (cudaEvent_t * event))
{
    return RT_CALL(cuEventCreate, event, CU_EVENT_DEFAULT);
}

RT_API(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags))
{
    return RT_CALL(cuEventCreate, event, flags);
}

RT_API(cudaEventQuery, (cudaEvent_t event))
{
    return RT_CALL(cuEventQuery, event);
}

RT_API(cudaEventSynchronize, (cudaEvent_t event))
{
    return RT_CALL(cuEventSynchronize, event);
}

RT_API(cudaEventDestroy, (cudaEvent_t event))
{
    return RT_CALL(cuEventDestroy, event);
}

static cudaError_t elapsed(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    return RT_CALL(cuEventElapsedTime, milliseconds, start, end);
}

#if RT_ABI == 12
RT_API(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end))
{
    return RT_CALL(cuEventElapsedTime_v1, milliseconds, start, end);
}

RT_API(cudaEventElapsedTime_v2, (float *milliseconds, cudaEvent_t start, cudaEvent_t end))
{
    return elapsed(milliseconds, start, end);
}
#else
RT_API(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end))
{
    return elapsed(milliseconds, start, end);
}
#endif

RT_API(cudaDriverGetVersion, (int *version))
{
    const struct rt_driver *driver = NULL;
    if (!version) {
        return rt_note(cudaErrorInvalidValue);
    }
    /* Documented: with no driver installed the answer is 0, and no error. */
    *version = 0;
    if (rt_driver_load(RT_LEGACY_STREAM, &driver) != cudaSuccess) {
        return cudaSuccess;
    }
    return rt_note(RT_TRY(driver, cuDriverGetVersion, version));
}

RT_API(cudaRuntimeGetVersion, (int *version))
{
    if (!version) {
        return rt_note(cudaErrorInvalidValue);
    }
    *version = RT_VERSION;
    return cudaSuccess;
}

RT_API(cudaProfilerStart, (void))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess && driver->cuProfilerStart) {
        error = rt_error(driver->cuProfilerStart());
    }
    return rt_note(error);
}

RT_API(cudaProfilerStop, (void))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess && driver->cuProfilerStop) {
        error = rt_error(driver->cuProfilerStop());
    }
    return rt_note(error);
}
