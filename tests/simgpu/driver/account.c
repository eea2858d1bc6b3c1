/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses how much of each device's memory. See account.h. */
#include "account.h"

#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROCESSES    256
#define REAP_INTERVAL_NS 50000000 /* checking every process takes tens of microseconds */
#define FILE_MAGIC       0x53494d475055312eull

struct process_line {
    int32_t pid;          /* 0: free */
    uint64_t start_ticks; /* with the pid, identifies one process */
    uint64_t used_bytes[SIM_MAX_DEVICES];
};

struct shared_file {
    uint64_t magic;
    pthread_mutex_t lock;                 /* robust, shared between processes */
    uint64_t used_bytes[SIM_MAX_DEVICES]; /* sums over the lines */
    struct process_line lines[MAX_PROCESSES];
};

static struct shared_file private_file;
static struct shared_file *file = &private_file;
static struct process_line *own_line = &private_file.lines[0];
static struct process_line *other_line; /* for sim_account_other; NULL: not used yet */
static pid_t own_pid;

/* Field 22 of /proc/PID/stat; 0 if there is no such process, or it is a zombie. */
static uint64_t process_start_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    /* The name, in parentheses, may contain anything, so fields are counted behind its end. */
    const char *at = strrchr(text, ')');
    unsigned long long ticks = 0;
    char state;
    if (!at || sscanf(at + 1,
                      " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%*s %*s %*s %llu",
                      &state, &ticks) != 2) {
        return 0;
    }
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

static void lock_file(void)
{
    if (file == &private_file) {
        return; /* sim_lock protects it */
    }
    if (pthread_mutex_lock(&file->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&file->lock);
    }
}

static void unlock_file(void)
{
    if (file != &private_file) {
        pthread_mutex_unlock(&file->lock);
    }
}

/* Thorough: also recognizes zombies, and processes whose id belongs to another by now, but has to
 * read /proc. */
static bool is_dead(const struct process_line *line, bool thorough)
{
    return thorough ? process_start_ticks(line->pid) != line->start_ticks
                    : kill(line->pid, 0) != 0 && errno == ESRCH;
}

/* The sums are computed anew: a process may have died between its line and the sum. */
static void reap_dead(bool thorough)
{
    memset(file->used_bytes, 0, sizeof file->used_bytes);
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process_line *line = &file->lines[i];
        if (line->pid && line != own_line && is_dead(line, thorough)) {
            memset(line, 0, sizeof *line);
        }
        for (int device = 0; device < SIM_MAX_DEVICES; device++) {
            file->used_bytes[device] += line->used_bytes[device];
        }
    }
}

static struct shared_file *map_file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return NULL;
    }
    struct shared_file *mapped = NULL;
    if (flock(fd, LOCK_EX) == 0 && ftruncate(fd, sizeof *mapped) == 0) {
        mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        mapped = mapped == MAP_FAILED ? NULL : mapped;
    }
    if (mapped && mapped->magic != FILE_MAGIC) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mapped->lock, &attributes);
        pthread_mutexattr_destroy(&attributes);
        mapped->magic = FILE_MAGIC;
    }
    flock(fd, LOCK_UN); /* explicitly, because the mapping keeps the file open */
    close(fd);
    return mapped;
}

static struct process_line *claim_line(pid_t pid)
{
    struct process_line *claimed = NULL;
    lock_file();
    reap_dead(true);
    for (int i = 0; i < MAX_PROCESSES && !claimed; i++) {
        if (file->lines[i].pid == 0) {
            claimed = &file->lines[i];
            *claimed = (struct process_line){.pid = pid, .start_ticks = process_start_ticks(pid)};
        }
    }
    unlock_file();
    return claimed;
}

void sim_account_open(void)
{
    own_pid = getpid();
    private_file.lines[0].pid = own_pid;
    if (!*sim_settings.shared) {
        return;
    }
    struct shared_file *mapped = map_file(sim_settings.shared);
    if (mapped) {
        file = mapped;
        own_line = claim_line(getpid());
    }
    if (!mapped || !own_line) {
        fprintf(
            stderr,
            "simgpu: SIMGPU_SHARED=%s cannot be used (%s); this process has the devices' memory "
            "for itself.\n",
            sim_settings.shared, mapped ? "256 processes share it already" : strerror(errno));
        file = &private_file;
        own_line = &private_file.lines[0];
    }
}

CUresult sim_account_charge(int device, uint64_t bytes)
{
    lock_file();
    uint64_t *used = &file->used_bytes[device];
    if (*used + bytes > sim_settings.memory_bytes && file != &private_file) {
        reap_dead(true);
    }
    bool fits = bytes <= sim_settings.memory_bytes && *used <= sim_settings.memory_bytes - bytes;
    if (fits) {
        *used += bytes;
        own_line->used_bytes[device] += bytes;
    }
    unlock_file();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_account_uncharge(int device, uint64_t bytes)
{
    lock_file();
    file->used_bytes[device] -= bytes;
    own_line->used_bytes[device] -= bytes;
    unlock_file();
}

/* Under the id of a process that always lives. */
void sim_account_other(int device, uint64_t bytes)
{
    const pid_t always_there = 1;
    if (!other_line) {
        other_line = claim_line(always_there);
    }
    if (!other_line) {
        return;
    }
    lock_file();
    uint64_t *used = &file->used_bytes[device], *held = &other_line->used_bytes[device];
    uint64_t left = sim_settings.memory_bytes - (*used - *held);
    bytes = bytes < left ? bytes : left;
    *used = *used - *held + bytes;
    *held = bytes;
    unlock_file();
}

uint64_t sim_account_used_here(int device)
{
    return own_line->used_bytes[device];
}

/* This file is also part of the NVML double, so it uses nothing else of the driver's. */
static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Zombies count until they were looked for, which is done where the last time was this long ago. */
static uint64_t used_by_all(int device, uint64_t interval_ns)
{
    static uint64_t last_reaped_ns;
    lock_file();
    if (file != &private_file) {
        bool thorough = now_ns() - last_reaped_ns >= interval_ns;
        reap_dead(thorough);
        last_reaped_ns = thorough ? now_ns() : last_reaped_ns;
    }
    uint64_t used = file->used_bytes[device];
    unlock_file();
    return used;
}

uint64_t sim_account_used_by_all(int device)
{
    return used_by_all(device, REAP_INTERVAL_NS);
}

uint64_t sim_account_used_by_living(int device)
{
    return used_by_all(device, 0);
}

unsigned sim_account_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes)
{
    unsigned count = 0;
    lock_file();
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process_line *line = &file->lines[i];
        if (line->pid && line->used_bytes[device]) {
            if (count < capacity) {
                pids[count] = (uint32_t)line->pid;
                bytes[count] = line->used_bytes[device];
            }
            count++;
        }
    }
    unlock_file();
    return count;
}

/* A forked child must not touch its parent's line. */
__attribute__((destructor)) static void leave_file(void)
{
    if (file != &private_file && own_pid == getpid()) {
        lock_file();
        for (int device = 0; device < SIM_MAX_DEVICES; device++) {
            file->used_bytes[device] -= own_line->used_bytes[device];
            file->used_bytes[device] -= other_line ? other_line->used_bytes[device] : 0;
        }
        memset(own_line, 0, sizeof *own_line);
        if (other_line) {
            memset(other_line, 0, sizeof *other_line);
        }
        unlock_file();
        file = &private_file;
        own_line = &private_file.lines[0];
    }
}
