/* SPDX-License-Identifier: Apache-2.0 */
/* What a Python program needs of C to be in a hard place: loaded by ctypes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

typedef CUresult (*allocate_t)(CUdeviceptr *block, size_t bytes);
typedef CUresult (*release_t)(CUdeviceptr block);

typedef CUresult (*set_current_t)(CUcontext context);

EXPORT void helper_use(set_current_t set_current, CUcontext context);
EXPORT int helper_allocate(allocate_t allocate, size_t bytes);
EXPORT int helper_thread(allocate_t allocate, size_t bytes);
EXPORT void helper_hold(void);
EXPORT void helper_allocate_while_held(allocate_t allocate, unsigned count, int status);
EXPORT void helper_allocate_for_ever(allocate_t allocate, release_t release);

static set_current_t make_current;
static CUcontext used;

/* What each thread asks with. */
void helper_use(set_current_t set_current, CUcontext context)
{
    make_current = set_current;
    used = context;
}

int helper_allocate(allocate_t allocate, size_t bytes)
{
    CUdeviceptr block;
    if (make_current(used) != CUDA_SUCCESS) {
        return -1;
    }
    const CUresult result = allocate(&block, bytes);
    return (int)result;
}

struct request {
    allocate_t allocate;
    size_t bytes;
    int result;
};

static void *allocate_there(void *data)
{
    struct request *request = data;
    request->result = helper_allocate(request->allocate, request->bytes);
    return NULL;
}

/* On a thread that Python has never seen. */
int helper_thread(allocate_t allocate, size_t bytes)
{
    struct request request = {allocate, bytes, -1};
    pthread_t thread;
    return pthread_create(&thread, NULL, allocate_there, &request) == 0 &&
                   pthread_join(thread, NULL) == 0
               ? request.result
               : -1;
}

static atomic_bool held;

/* Called with the GIL, which it never lets go of. */
void helper_hold(void)
{
    atomic_store(&held, true);
    for (;;) {
        (void)pause();
    }
}

/* Called without the GIL; ends the process, since nobody can go back into Python. */
void helper_allocate_while_held(allocate_t allocate, unsigned count, int status)
{
    while (!atomic_load(&held)) {
        (void)usleep(1000);
    }
    for (unsigned i = 0; i < count; i++) {
        if (helper_allocate(allocate, 4096) != 0 || helper_thread(allocate, 4096) != 0) {
            _exit(1);
        }
    }
    _exit(status);
}

void helper_allocate_for_ever(allocate_t allocate, release_t release)
{
    CUdeviceptr block;
    (void)make_current(used);
    while (allocate(&block, 4096) == CUDA_SUCCESS && release(block) == CUDA_SUCCESS) {
    }
}
