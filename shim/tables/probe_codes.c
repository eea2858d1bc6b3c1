/* SPDX-License-Identifier: Apache-2.0 */
/* The answer and the reason for each code of a probe. */
#include "shim/tables/probe_codes.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

static const struct code_row {
    int code;
    enum ms_probe_answer answer;
    const char *why;
} rows[] = {
#define MS_PROBE_CODE(name, number, answer, why) {(number), MS_PROBE_##answer, (why)},
    MS_PROBE_CODES
#undef MS_PROBE_CODE
};

static const struct code_row *find(int code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].code == code) {
            return &rows[i];
        }
    }
    return NULL;
}

int ms_probe_code_of(int wait_status)
{
    if (WIFEXITED(wait_status)) {
        return WEXITSTATUS(wait_status);
    }
    return WTERMSIG(wait_status) == SIGALRM ? MS_PROBE_HUNG_CODE : MS_PROBE_KILLED_CODE;
}

enum ms_probe_answer ms_probe_answer_of(int code)
{
    const struct code_row *row = find(code);
    return row ? row->answer : MS_PROBE_UNKNOWN;
}

const char *ms_probe_why(int code)
{
    const struct code_row *row = find(code);
    return row ? row->why : "the test ended in a way that is not known";
}
