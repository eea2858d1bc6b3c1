/* SPDX-License-Identifier: Apache-2.0 */
/* Line tables of Python's code objects, against what each version of Python says. */
#include <criterion/criterion.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "line_tables.h"
#include "report/symbols/stacks.h"
#include "synthetic.h"

#define INSTRUCTION_BYTES 2
#define TABLES            (sizeof(line_tables) / sizeof(*line_tables))

static uint32_t line_at(const struct line_table *table, uint32_t instruction)
{
    const struct ms_code_definition code = {.version = table->version,
                                            .first_line = table->first_line,
                                            .table_bytes = table->table_bytes};

    return ms_python_line(&code, (const uint8_t *)table->table, instruction);
}

Test(python_line, agrees_with_every_version_at_every_instruction)
{
    uint32_t versions = 0, last = 0;

    for (size_t i = 0; i < TABLES; i++) {
        const struct line_table *table = &line_tables[i];
        uint32_t change = 0;

        versions += table->version != last;
        last = table->version;
        for (uint32_t at = 0; at < table->code_bytes; at += INSTRUCTION_BYTES) {
            while (change + 1 < table->change_count && table->changes[change + 1].offset <= at) {
                change++;
            }
            cr_assert_eq(line_at(table, at), table->changes[change].line,
                         "table %zu, version %x, offset %u: %u, not %u", i, table->version, at,
                         line_at(table, at), table->changes[change].line);
        }
    }
    cr_assert_eq(versions, 6);
}

Test(python_line, knows_nothing_without_a_table_or_behind_it)
{
    for (size_t i = 0; i < TABLES; i++) {
        struct line_table none = line_tables[i];

        if (none.version > 0x309) {
            cr_assert_eq(line_at(&none, none.code_bytes + 1000), 0);
            cr_assert_eq(line_at(&none, UINT32_MAX), 0);
        }
        none.table_bytes = 0;
        cr_assert_eq(line_at(&none, 0), 0);
    }
}

/* A table that ends where the process's memory ends: a read behind it is a crash. */
static uint8_t *at_the_edge(const uint8_t *bytes, size_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static char *pages;

    if (!pages) {
        pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(pages, MAP_FAILED);
        cr_assert_eq(mprotect(pages + page, page, PROT_NONE), 0);
    }
    cr_assert_leq(count, page);
    return memcpy(pages + page - count, bytes, count);
}

Test(python_line, stays_inside_hostile_tables)
{
    uint64_t random = 20260801;
    uint8_t bytes[400];

    for (int round = 0; round < 20000; round++) {
        const struct line_table *from = &line_tables[synthetic_random(&random) % TABLES];
        const size_t count = synthetic_random(&random) % sizeof(bytes);
        struct line_table hostile = *from;

        for (size_t i = 0; i < count; i++) {
            bytes[i] = i < from->table_bytes && synthetic_random(&random) % 8 != 0
                           ? (uint8_t)from->table[i]
                           : (uint8_t)synthetic_random(&random);
        }
        hostile.table = (const char *)at_the_edge(bytes, count);
        hostile.table_bytes = (uint32_t)count;
        line_at(&hostile, (uint32_t)(synthetic_random(&random) % 2000));
        line_at(&hostile, UINT32_MAX);
    }
}

Test(python_line, a_line_out_of_range_is_none)
{
    /* 3.11: a long step of more lines than there are. */
    const struct line_table far = {.version = 0x30b,
                                   .first_line = 10,
                                   .table_bytes = 9,
                                   .table = "\360\177\177\177\177\177\077\0\0"};
    /* 3.9: back before the first line of the file. */
    const struct line_table back = {
        .version = 0x309, .first_line = 10, .table_bytes = 4, .table = "\0\200\0\200"};

    cr_assert_eq(line_at(&far, 0), 0);
    cr_assert_eq(line_at(&back, 0), 0);
}
