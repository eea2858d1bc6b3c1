/* SPDX-License-Identifier: Apache-2.0 */
/* Has a module's file read in a process of its own, and receives its answers. */
#include "report/symbols/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "report/symbols/answers.h"
#include "report/symbols/module_file.h"

#define INLET_BYTES 65536u
#define MS_NS       1000000u
#define MOST_MEMORY                                                               \
    (UINT64_C(8) << 30) /* of the reading process; a large library's DWARF: 2 GiB \
                         */

/* The buffer of incoming answers. */
struct inlet {
    int fd;
    uint64_t end_ns;
    size_t from, to; /* the bytes received and not used yet */
    char bytes[INLET_BYTES];
};

/* Waits for more bytes. False: the other process has ended, or took too long. */
static bool fill(struct inlet *inlet)
{
    struct pollfd wait = {.fd = inlet->fd, .events = POLLIN};

    for (;;) {
        const uint64_t now_ns = ms_clock_ns();

        if (now_ns >= inlet->end_ns) {
            return false;
        }

        const int ready = poll(&wait, 1, (int)((inlet->end_ns - now_ns) / MS_NS) + 1);
        const ssize_t got = ready > 0 ? read(inlet->fd, inlet->bytes, sizeof(inlet->bytes)) : -1;

        if (got > 0) {
            inlet->from = 0;
            inlet->to = (size_t)got;
            return true;
        }
        if (got == 0 || (ready != 0 && errno != EINTR)) {
            return false;
        }
    }
}

static bool take(struct inlet *inlet, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const size_t in = inlet->to - inlet->from;
        const size_t some = in < bytes - done ? in : bytes - done;

        memcpy((char *)to + done, inlet->bytes + inlet->from, some);
        inlet->from += some;
        done += some;
        if (done < bytes && !fill(inlet)) {
            return false;
        }
    }
    return true;
}

struct answer_texts {
    char at[MS_ANSWER_TEXTS][MS_ANSWER_TEXT_MOST];
};

/* Takes the answer's texts, each with a zero byte at its end. */
static bool take_texts(struct inlet *inlet, const struct ms_answer *answer,
                       struct answer_texts *texts)
{
    for (size_t i = 0; i < MS_ANSWER_TEXTS; i++) {
        const uint32_t bytes = answer->text_bytes[i];

        if (bytes >= MS_ANSWER_TEXT_MOST || !take(inlet, texts->at[i], bytes)) {
            return false;
        }
        texts->at[i][bytes] = 0;
    }
    return true;
}

/* Returns whether all answers came. */
static bool listen_to(struct inlet *inlet, size_t count, const struct ms_symbols_listener *listener)
{
    struct ms_answer answer;
    struct answer_texts texts;

    while (take(inlet, &answer, sizeof(answer)) && take_texts(inlet, &answer, &texts)) {
        const char *first = texts.at[0][0] ? texts.at[0] : NULL;
        const char *second = texts.at[1][0] ? texts.at[1] : NULL;

        if (answer.kind == MS_ANSWER_END) {
            return true;
        }
        if (answer.index >= count || answer.kind > MS_ANSWER_END) {
            return false;
        }
        if (answer.kind == MS_ANSWER_SYMBOL && first && second) {
            listener->on_symbol(listener->context, answer.index, first, second);
        } else if (answer.kind != MS_ANSWER_SYMBOL) {
            listener->on_source(
                listener->context, answer.index,
                &(struct ms_source){.function = first, .file = second, .line = answer.line},
                answer.kind == MS_ANSWER_INLINED);
        }
    }
    return false;
}

/* Not in builds with a sanitizer, which reserves terabytes of addresses. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void bound_memory(void)
{
    struct rlimit memory;

    if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur > MOST_MEMORY) {
        memory.rlim_cur = MOST_MEMORY;
        setrlimit(RLIMIT_AS, &memory);
    }
}
#else
static void bound_memory(void)
{
}
#endif

/* Makes sure that this process leaves no core file, ends with its parent, and takes no more memory
 * than reading a library needs. */
static void confine(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    bound_memory();
}

static void answer_and_end(const struct ms_symbols_request *request, int fd)
{
    const struct ms_answer end = {.kind = MS_ANSWER_END};
    FILE *to = fdopen(fd, "w");

    confine();
    if (to) {
        ms_module_file_answer(request, to);
        fwrite(&end, sizeof(end), 1, to);
        fflush(to);
    }
    _exit(0);
}

bool ms_symbols_can_read(void)
{
    return ms_module_file_prepare();
}

bool ms_symbols_read(const struct ms_symbols_request *request,
                     const struct ms_symbols_listener *listener)
{
    struct inlet inlet = {.end_ns = ms_clock_ns() + (uint64_t)request->limit_ms * MS_NS};
    int ends[2];

    if (!request->modules_dir && access(request->module_path, R_OK) != 0) {
        return true; /* nothing to read */
    }
    if (!ms_symbols_can_read()) {
        return false;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    ms_demangle_prepare();

    const pid_t reader = fork();

    if (reader == 0) {
        close(ends[0]);
        answer_and_end(request, ends[1]);
    }
    close(ends[1]);
    inlet.fd = ends[0];

    const bool whole = reader > 0 && listen_to(&inlet, request->count, listener);

    close(ends[0]);
    if (reader > 0) {
        kill(reader, SIGKILL);
        while (waitpid(reader, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    return whole;
}
