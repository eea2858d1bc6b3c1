/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a command's words, also those inside a shell's script. */
#include "shim/cli/dry_run/words.h"

#include <stdbool.h>
#include <string.h>

#include "allocator/base/path.h"

#define FIRST_WORDS 3 /* of a command: a launcher after them is an argument */

static bool is_among(const char *word, const char *const *names, size_t count)
{
    const char *name = ms_base_name(word);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_launcher(const char *word)
{
    static const char *const names[] = {"torchrun",
                                        "accelerate",
                                        "deepspeed",
                                        "mpirun",
                                        "srun",
                                        "torch.distributed.run",
                                        "torch.distributed.launch"};

    return is_among(word, names, sizeof(names) / sizeof(*names));
}

static bool is_shell(const char *word)
{
    static const char *const names[] = {"sh", "bash", "dash", "ksh", "zsh"};

    return is_among(word, names, sizeof(names) / sizeof(*names));
}

/* -c, also among other letters as in -lc. */
static bool takes_script(const char *word)
{
    return word[0] == '-' && word[1] != '-' && word[strlen(word) - 1] == 'c';
}

static void add_word(struct ms_buffer *words, const char *word, size_t length)
{
    ms_buffer_append(words, word, length);
    ms_buffer_append(words, "", 1);
}

static void add_script(struct ms_buffer *words, const char *script)
{
    while (*script) {
        const size_t length = strcspn(script, " \t\n;&|(){}'\"`\\");

        if (length > 0) {
            add_word(words, script, length);
        }
        script += length;
        if (*script && strchr("\n;&|(){}`", *script)) {
            add_word(words, "", 0);
        }
        script += *script != '\0';
    }
    add_word(words, "", 0);
}

void ms_dry_words(char *const *command, struct ms_buffer *words)
{
    bool shell = false;

    for (size_t i = 0; command[i]; i++) {
        if (command[i][0]) {
            add_word(words, command[i], strlen(command[i]));
        }
    }
    add_word(words, "", 0);
    for (size_t i = 0; command[i]; i++) {
        shell = shell || (i < FIRST_WORDS && is_shell(command[i]));
        if (shell && takes_script(command[i]) && command[i + 1]) {
            add_script(words, command[i + 1]);
            return;
        }
    }
}

/* NAME=VALUE before a command. */
static bool is_setting(const char *word)
{
    return word[0] != '-' && strchr(word, '=');
}

const char *ms_dry_words_launcher(const struct ms_buffer *words)
{
    size_t place = 0;

    for (size_t i = 0; !words->failed && i < words->bytes; i += strlen(words->at + i) + 1) {
        const char *word = words->at + i;

        if (place < FIRST_WORDS && is_launcher(word)) {
            return word;
        }
        if (*word == '\0') {
            place = 0;
        } else if (!is_setting(word)) {
            place++;
        }
    }
    return NULL;
}
