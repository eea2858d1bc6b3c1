/* SPDX-License-Identifier: Apache-2.0 */
/* A program that names its phases. One scenario a run: tags_job NAME. */
#define MEMSHIM_WEAK
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"
#include "shim/memshim.h"

static struct driver cu;
static CUcontext context;

/* Each allocation has a size of its own, by which the test knows it. */
static void allocate(size_t kib)
{
    CUdeviceptr block;
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemAlloc(&block, kib * KIB));
    MUST(cu.cuMemFree(block));
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, run, argument));
    MUST(pthread_join(thread, NULL));
}

static void *worker(void *kib)
{
    allocate((size_t)kib);
    return NULL;
}

static void *tagged_worker(void *kib)
{
    memshim_tag_push("thread");
    allocate((size_t)kib);
    memshim_tag_push("inner");
    allocate((size_t)kib + 1);
    memshim_tag_pop();
    in_thread(worker, (void *)((size_t)kib + 2)); /* of two tagged threads */
    return NULL;                                  /* "thread" ends with it */
}

/* "early" and its inside are pushed before there is a trace. */
static void nested(void)
{
    memshim_tag_push("early");
    memshim_tag_push("forward");
    cu = driver_use(&context);
    allocate(1);
    memshim_tag_pop();
    allocate(2);
    memshim_tag_pop();
    allocate(3);
    memshim_tag_push("forward"); /* another tag than the one within early */
    allocate(4);
    in_thread(worker, (void *)5);
    in_thread(tagged_worker, (void *)6);
    in_thread(worker, (void *)9); /* again of one, but which tag it has was lost sight of */
    memshim_tag_push("again");
    in_thread(worker, (void *)10);
    memshim_tag_pop();
    in_thread(worker, (void *)11);
    memshim_tag_pop();
    in_thread(worker, (void *)12);
}

/* Nothing was allocated while the tag was open. */
static void unseen(void)
{
    memshim_tag_push("early");
    cu = driver_use(&context);
    memshim_tag_pop();
}

static void bad_input(void)
{
    char longest[1000];
    cu = driver_use(&context);
    memshim_tag_pop();
    memshim_tag_push(NULL);
    allocate(1);
    memshim_tag_push("");
    memshim_tag_push("inside");
    allocate(2);
    memshim_tag_pop();
    memshim_tag_pop();
    allocate(3);
    memshim_tag_pop();
    memshim_tag_pop();
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    memcpy(longest + 254, "\xe2\x82\xac", 3); /* three bytes of UTF-8 across the limit */
    memshim_tag_push(longest);
    memshim_tag_pop();
    memshim_tag_push("quotes \" ' <b> \\ \n \x01 \xff\xfe \xed\xa0\x80 \x1b[31m");
    allocate(4);
    memshim_tag_pop();
}

/* 100 levels; the 64th has the last tag. */
static void deep(void)
{
    char name[16];
    cu = driver_use(&context);
    for (int i = 1; i <= 100; i++) {
        (void)snprintf(name, sizeof(name), "level %d", i);
        memshim_tag_push(name);
    }
    allocate(1);
    for (int i = 0; i < 99; i++) {
        memshim_tag_pop();
    }
    allocate(2);
    memshim_tag_pop();
    allocate(3);
}

static void many(void)
{
    char name[32];
    cu = driver_use(&context);
    memshim_tag_push("known");
    memshim_tag_pop();
    for (int i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof(name), "name %d", i);
        memshim_tag_push(name);
        memshim_tag_pop();
    }
    memshim_tag_push("known");
    allocate(1);
    memshim_tag_push("new");
    allocate(2);
    memshim_tag_pop();
    memshim_tag_pop();
}

/* Two threads meet before each new name, so that both find it missing. */
static void *meet(void *arrivals)
{
    char name[32];
    for (unsigned i = 0; i < 20000; i++) {
        (void)snprintf(name, sizeof(name), "met %u", i);
        (void)__atomic_add_fetch((unsigned *)arrivals, 1, __ATOMIC_SEQ_CST);
        for (unsigned spins = 1;
             __atomic_load_n((unsigned *)arrivals, __ATOMIC_SEQ_CST) < 2 * i + 2; spins++) {
            if (spins % 1000 == 0) {
                (void)sched_yield();
            }
        }
        memshim_tag_push(name);
        memshim_tag_pop();
    }
    return NULL;
}

static void *churn(void *unused)
{
    char name[32];
    (void)unused;
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof(name), "shared %d", i % 500);
        memshim_tag_push(name);
        memshim_tag_push("inside");
        memshim_tag_pop();
        memshim_tag_pop();
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[8];
    pthread_t other;
    unsigned arrivals = 0;
    cu = driver_use(&context);
    MUST(pthread_create(&other, NULL, meet, &arrivals));
    (void)meet(&arrivals);
    MUST(pthread_join(other, NULL));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        MUST(pthread_create(&all[i], NULL, churn, NULL));
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        MUST(pthread_join(all[i], NULL));
    }
    memshim_tag_push("alone");
    in_thread(worker, (void *)1);
    memshim_tag_pop();
}

static void steps(void)
{
    memshim_step(); /* before there is a trace */
    cu = driver_use(&context);
    for (size_t i = 0; i < 3; i++) {
        memshim_step();
        allocate(1 + i);
    }
}

static void child_of(int status)
{
    int ended;
    pid_t child = fork();
    if (child == 0) {
        memshim_tag_push("child");
        memshim_step();
        if (status == 8) {
            cu = driver_use(&context);
            allocate(2);
            in_thread(worker, (void *)3); /* the parent's other threads are not the child's */
        }
        memshim_tag_pop();
        memshim_tag_pop();
        exit(status);
    }
    EXPECT(child > 0 && waitpid(child, &ended, 0) == child);
    EXPECT(WIFEXITED(ended) && WEXITSTATUS(ended) == status);
}

/* A child of a process that uses the device tells nothing. */
static void fork_after(void)
{
    cu = driver_use(&context);
    memshim_tag_push("parent");
    child_of(7);
    allocate(1);
    memshim_tag_pop();
}

static void *tagged_until(void *barrier)
{
    memshim_tag_push("other");
    (void)pthread_barrier_wait(barrier);
    (void)pthread_barrier_wait(barrier);
    return NULL;
}

/* A child from before tells its own. */
static void fork_before(void)
{
    pthread_t other;
    pthread_barrier_t barrier;
    MUST(pthread_barrier_init(&barrier, NULL, 2));
    MUST(pthread_create(&other, NULL, tagged_until, &barrier));
    (void)pthread_barrier_wait(&barrier);
    memshim_tag_push("parent");
    child_of(8);
    (void)pthread_barrier_wait(&barrier);
    MUST(pthread_join(other, NULL));
}

static void no_device(void)
{
    memshim_tag_push("nothing");
    memshim_step();
    memshim_tag_pop();
}

static void pairs(void)
{
    cu = driver_use(&context);
    for (int i = 0; i < 200000; i++) {
        memshim_tag_push("forward");
        memshim_tag_pop();
    }
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"nested", nested},
                     {"unseen", unseen},
                     {"bad-input", bad_input},
                     {"deep", deep},
                     {"many", many},
                     {"threads", threads},
                     {"steps", steps},
                     {"fork-after", fork_after},
                     {"fork-before", fork_before},
                     {"no-device", no_device},
                     {"pairs", pairs}};
    EXPECT(count == 2);
    EXPECT(memshim_tag_push != NULL);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(scenarios[i].name, arguments[1]) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
