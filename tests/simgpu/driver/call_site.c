/* SPDX-License-Identifier: Apache-2.0 */
/* Where a driver function was called. See call_site.h. */
#include "call_site.h"

#include "entry.h"
#include "object.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_FRAMES 24
#define SLAB_SITES 256

struct sim_call_site {
    struct sim_call_site *next_free;
    uint64_t references;
    const char *function;
    long thread;
    int frame_count;
    void *frames[MAX_FRAMES];
};

static struct sim_call_site *free_sites;
static struct sim_call_site unknown = {.references = 1, .function = "the simulated GPU"};
static _Thread_local const char *entered; /* NULL: in no driver function */
static _Thread_local struct sim_call_site *site_of_call;

void sim_call_site_prepare(void)
{
    void *frame;
    backtrace(&frame, 1);
}

void sim_call_site_enter(const char *function)
{
    entered = function;
}

bool sim_call_site_leave(void)
{
    bool taken = site_of_call != NULL;
    sim_call_site_release(site_of_call);
    site_of_call = NULL;
    entered = NULL;
    return taken;
}

static void fill(struct sim_call_site *site)
{
    site->function = entered ? entered : unknown.function;
    site->thread = syscall(SYS_gettid);
    site->frame_count = backtrace(site->frames, MAX_FRAMES);
}

/* NULL: out of memory. */
static struct sim_call_site *new_site(void)
{
    struct sim_call_site *slab = free_sites ? NULL : sim_pages(SLAB_SITES * sizeof *slab);
    for (int i = 0; slab && i < SLAB_SITES; i++) {
        slab[i].next_free = free_sites;
        free_sites = &slab[i];
    }
    struct sim_call_site *site = free_sites;
    if (site) {
        free_sites = site->next_free;
        site->references = 1;
        fill(site);
    }
    return site;
}

struct sim_call_site *sim_call_site_here(void)
{
    if (entered && !site_of_call) {
        site_of_call = new_site();
    }
    struct sim_call_site *site = site_of_call ? site_of_call : &unknown;
    site->references++;
    return site;
}

void sim_call_site_release(struct sim_call_site *site)
{
    if (site && --site->references == 0) {
        site->next_free = free_sites;
        free_sites = site;
    }
}

static void print_frames(const struct sim_call_site *site)
{
    fflush(stderr);
    backtrace_symbols_fd(site->frames, site->frame_count, STDERR_FILENO);
}

void sim_call_site_abort(const char *kind, const void *handle,
                         const struct sim_call_site *destruction)
{
    struct sim_call_site use = {0};
    fill(&use);
    fprintf(stderr,
            "simgpu: %s uses a destroyed handle: %p, used as a %s, destroyed by %s. The driver API "
            "leaves this undefined (SIMGPU_STRICT=0 gives an error instead).\n"
            "simgpu: used by thread %ld at\n",
            use.function, handle, kind, destruction->function, use.thread);
    print_frames(&use);
    fprintf(stderr, "simgpu: destroyed by thread %ld at\n", destruction->thread);
    print_frames(destruction);
    sim_unlock(); /* a handler for the signal may call the driver */
    abort();
}
