/* SPDX-License-Identifier: Apache-2.0 */
// PyTorch's own caching allocator, called as its tensors call it. A stream a thread.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cuda_runtime_api.h>

#include <cstdlib>

#include "subject.h"

extern "C" {

const char subject_name[] = "torch";

static thread_local cudaStream_t stream;

void subject_begin(void)
{
    const int devices = c10::cuda::device_count();
    // Expandable segments ask it; PyTorch makes it where its own start does.
    c10::cuda::detail::init_p2p_access_cache(devices);
    c10::cuda::CUDACachingAllocator::init(devices);
}

void subject_begin_thread(void)
{
    if (cudaSetDevice(0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        exit(1);
    }
}

void *subject_alloc(size_t bytes)
{
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
}

void subject_free(void *block)
{
    c10::cuda::CUDACachingAllocator::raw_delete(block);
}
}
