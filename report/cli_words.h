/* How the commands read their options. */
#ifndef MEMSHIM_REPORT_CLI_WORDS_H
#define MEMSHIM_REPORT_CLI_WORDS_H

#include <stdbool.h>

/* The value of "--name=VALUE", or of "--name VALUE", where `next` is the word after (null: none);
 * empty where it is missing. Null where `word` is another one. */
const char *ms_cli_value(const char *name, const char *word, const char *next);

bool ms_cli_is_folder(const char *path);

#endif
