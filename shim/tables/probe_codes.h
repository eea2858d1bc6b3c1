/* SPDX-License-Identifier: Apache-2.0 */
/* The possible results of a probe: a question to the driver that is asked in a throw-away process
 * (shim/process/probe.h). */
#ifndef MEMSHIM_SHIM_TABLES_PROBE_CODES_H
#define MEMSHIM_SHIM_TABLES_PROBE_CODES_H

enum ms_probe_answer { MS_PROBE_UNKNOWN, MS_PROBE_YES, MS_PROBE_NO };

/* MS_PROBE_CODE(name, number, answer, why): one possible result. The process that asks (`memshim
 * probe-...`, shim/cli/doctor/probe.c) ends with one of the first ten as its exit status; the
 * others say why it did not get that far.
 *
 * A no is what the driver or the device itself answered, and answered twice. Whatever else can go
 * wrong is unknown. */
#define MS_PROBE_CODES                                                                          \
    MS_PROBE_CODE(WORKS, 0, YES, "it works")                                                    \
    MS_PROBE_CODE(NO_MAPPING, 3, NO, "not every device can map memory")                         \
    MS_PROBE_CODE(NO_DEVICE, 4, UNKNOWN, "no device, or no context on it, could be had")        \
    MS_PROBE_CODE(REFUSED, 5, NO, "the driver offers mapped host memory, but refuses it")       \
    MS_PROBE_CODE(FAULT, 6, NO, "the device's access to mapped host memory faults")             \
    MS_PROBE_CODE(WRONG, 7, NO, "what the device writes to mapped host memory does not arrive") \
    MS_PROBE_CODE(NO_MEMORY, 8, UNKNOWN, "there was no memory to test it with")                 \
    MS_PROBE_CODE(ERROR, 9, UNKNOWN, "the driver failed at the test for another reason")        \
    MS_PROBE_CODE(NO_START, 10, UNKNOWN, "the driver did not start within 10 s")                \
    MS_PROBE_CODE(NO_COMMAND, 20, UNKNOWN, "the memshim command is not beside the library")     \
    MS_PROBE_CODE(NOT_RUN, 21, UNKNOWN, "no process could be started to test it")               \
    MS_PROBE_CODE(KILLED, 22, UNKNOWN, "the process that tested it was killed")                 \
    MS_PROBE_CODE(HUNG, 23, UNKNOWN, "the test did not end in time")                            \
    MS_PROBE_CODE(DIFFERED, 24, UNKNOWN, "two tests of it in a row differed")

enum ms_probe_code {
#define MS_PROBE_CODE(name, number, answer, why) MS_PROBE_##name##_CODE = (number),
    MS_PROBE_CODES
#undef MS_PROBE_CODE
};

/* How a probe's process ended, by wait()'s status: its exit status, HUNG if its own alarm clock
 * ended it, KILLED if another signal did. */
int ms_probe_code_of(int wait_status);

/* For any number; one that is not in the table is unknown. why: never null. */
enum ms_probe_answer ms_probe_answer_of(int code);
const char *ms_probe_why(int code);

/* Set in the environment of that process. A library that is preloaded there nevertheless does
 * nothing; otherwise each probe would start another one. */
#define MS_PROBING "MEMSHIM_PROBING"

#endif
