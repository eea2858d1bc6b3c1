/* SPDX-License-Identifier: Apache-2.0 */
/* Tries every assumption that the simulated GPU makes about the real driver, and prints a line of
 * JSON for each: {"assumption": ..., "holds": true, false or null (not tried), "saw": ...}; and for
 * each answer to a question {"answer": the question, "saw": ..., "value": a number or null, "unit":
 * ...}. The exit status is 0 whatever holds; 1 where there is no device.
 *
 * assumptions [FIRST]: from that number on.
 * assumptions spin: keeps the device busy for another process that tries something. */
#include "tests/gpu/assume.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct assumption *const groups[] = {
    assume_mapping, assume_memory, assume_order, assume_host,  assume_boundary,
    assume_kernels, assume_graphs, assume_waits, assume_reset, NULL};
static char seen[256];
/* A child that is stuck is left behind; the driver's calls take a fraction of this. */
static const unsigned patience_s = 20;

enum verdict assume_saw(enum verdict verdict, const char *what, long long value)
{
    (void)snprintf(seen, sizeof seen, value != 0 ? "%s (%lld)" : "%s", what, value);
    return verdict;
}

static const struct assumption *assumption(unsigned number)
{
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (const struct assumption *row = groups[g]; row->says != NULL; row++) {
            if (number-- == 0) {
                return row;
            }
        }
    }
    return NULL;
}

static void print_quoted(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        (void)printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    (void)putchar('"');
}

static void say(const struct assumption *row, enum verdict verdict, const char *saw)
{
    static const char *const words[] = {[HOLDS] = "true", [DIFFERS] = "false", [UNTRIED] = "null"};
    (void)printf("{\"assumption\": \"%s\", \"holds\": %s, \"saw\": ", row->says, words[verdict]);
    print_quoted(saw);
    (void)printf("}\n");
    (void)fflush(stdout);
}

void assume_answer(const char *question, const char *answer)
{
    (void)printf("{\"answer\": ");
    print_quoted(question);
    (void)printf(", \"saw\": ");
    print_quoted(answer);
    (void)printf(", \"value\": null, \"unit\": \"\"}\n");
    (void)fflush(stdout);
}

void assume_whether(const char *question, bool yes)
{
    assume_answer(question, yes ? "yes" : "no");
}

const char *assume_result_name(CUresult result)
{
    const char *name = NULL;
    (void)cuGetErrorName(result, &name);
    return name != NULL ? name : "an unknown error";
}

void assume_gives(const char *question, CUresult result)
{
    assume_answer(question, assume_result_name(result));
}

void assume_measured(const char *question, long long value, const char *unit)
{
    (void)printf("{\"answer\": ");
    print_quoted(question);
    (void)printf(", \"saw\": \"\", \"value\": %lld, \"unit\": \"%s\"}\n", value, unit);
    (void)fflush(stdout);
}

/* Tries one after the other from this number on, as far as one process can, and says through the
 * pipe which is next. Ends the process. */
static void try_some(unsigned number, int pipe_end)
{
    struct gpu gpu;
    const struct assumption *row;
    bool go_on = true;
    (void)alarm(patience_s);
    gpu_open(&gpu);
    for (unsigned first = number; go_on && (row = assumption(number)) != NULL; number++) {
        if (row->alone && number != first) {
            break;
        }
        (void)alarm(patience_s);
        seen[0] = '\0';
        enum verdict verdict = row->try(&gpu);
        say(row, verdict, seen);
        go_on = verdict != DIFFERS && !row->alone;
        unsigned next = number + 1;
        EXPECT(write(pipe_end, &next, sizeof next) == sizeof next);
    }
    _exit(0);
}

/* One process's share, from *number on, which is moved on; false: there is no device. */
static bool try_in_child(unsigned *number, bool first)
{
    int ends[2];
    int status = 0;
    bool got_somewhere = false;
    MUST(pipe(ends));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        (void)close(ends[0]);
        try_some(*number, ends[1]);
    }
    (void)close(ends[1]);
    for (unsigned next; read(ends[0], &next, sizeof next) == sizeof next;) {
        *number = next;
        got_somewhere = true;
    }
    (void)close(ends[0]);
    EXPECT(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (first && !got_somewhere && WIFEXITED(status)) {
        return false;
    }
    (void)snprintf(seen, sizeof seen, WIFSIGNALED(status) ? "signal %d" : "exit status %d",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (assumption(*number) == NULL) {
        (void)fprintf(stderr, "behind the last one its process ended with %s\n", seen);
        return false;
    }
    say(assumption(*number), DIFFERS, seen);
    (*number)++;
    return true;
}

/* A process that only starts others: none of them inherits a driver. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0) {
        return assume_spin();
    }
    unsigned number = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    for (bool first = true; assumption(number) != NULL; first = false) {
        if (!try_in_child(&number, first)) {
            return 1;
        }
    }
    return 0;
}
