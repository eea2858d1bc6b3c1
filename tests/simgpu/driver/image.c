/* SPDX-License-Identifier: Apache-2.0 */
/* Images of modules and libraries, in the text form that simgpu.h describes, or anything else.
 * See image.h. */
#include "image.h"

#include "torch_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MARK "simgpu-module"

/* The assumed size of an undeclared global: that of a pointer table or a counter. */
#define UNDECLARED_GLOBAL_BYTES 4096

static void set_effect(struct sim_symbol *symbol)
{
    if (strcmp(symbol->name, "simgpu_fill") == 0) {
        symbol->run = sim_kernel_fill;
    } else if (strcmp(symbol->name, "simgpu_check") == 0) {
        symbol->run = sim_kernel_check;
    } else if (strcmp(symbol->name, "simgpu_spin") == 0) {
        symbol->run = sim_kernel_spin;
        symbol->lasts = true;
    } else {
        sim_torch_kernel(symbol);
    }
}

static struct sim_symbol *add_symbol(struct sim_image *image, const char *name, size_t length)
{
    struct sim_symbol *symbol = calloc(1, sizeof *symbol);
    if (!symbol) {
        return NULL;
    }
    symbol->name = strndup(name, length);
    if (!symbol->name) {
        free(symbol);
        return NULL;
    }
    symbol->next = image->symbols;
    image->symbols = symbol;
    set_effect(symbol);
    return symbol;
}

static bool add_parameter(struct sim_symbol *symbol, size_t offset, size_t bytes)
{
    if (symbol->parameter_count == SIM_MAX_PARAMETERS) {
        return false;
    }
    symbol->offsets[symbol->parameter_count] = offset;
    symbol->sizes[symbol->parameter_count++] = bytes;
    return true;
}

/* simgpu.h: the three kernels in every image. */
static bool add_built_in(struct sim_image *image)
{
    struct sim_symbol *fill = add_symbol(image, "simgpu_fill", strlen("simgpu_fill"));
    struct sim_symbol *check = add_symbol(image, "simgpu_check", strlen("simgpu_check"));
    struct sim_symbol *spin = add_symbol(image, "simgpu_spin", strlen("simgpu_spin"));
    return fill && check && spin && add_parameter(spin, 0, 8) && add_parameter(fill, 0, 8) &&
           add_parameter(fill, 8, 8) && add_parameter(fill, 16, 4) && add_parameter(check, 0, 8) &&
           add_parameter(check, 8, 8) && add_parameter(check, 16, 4) && add_parameter(check, 24, 8);
}

/* Parses one line of the text form, of `length` characters. */
static bool parse_line(struct sim_image *image, const char *line, size_t length)
{
    char copy[4096];
    char name[256];
    int used = 0;
    if (length >= sizeof copy) {
        return false;
    }
    memcpy(copy, line, length);
    copy[length] = '\0';
    if (copy[strspn(copy, " \t\r")] == '\0') {
        return true;
    }
    unsigned long long bytes;
    if (sscanf(copy, "global %255s %llu", name, &bytes) == 2) {
        struct sim_symbol *symbol = bytes ? add_symbol(image, name, strlen(name)) : NULL;
        if (symbol) {
            symbol->is_global = true;
            symbol->global_bytes = bytes;
        }
        return symbol != NULL;
    }
    if (sscanf(copy, "kernel %255s%n", name, &used) != 1) {
        return false;
    }
    struct sim_symbol *symbol = add_symbol(image, name, strlen(name));
    size_t offset, size;
    int step;
    for (const char *at = copy + used; symbol; at += step) {
        if (at[strspn(at, " \t\r")] == '\0') {
            return true;
        }
        step = 0;
        if (sscanf(at, " %zu:%zu%n", &offset, &size, &step) != 2 || step == 0 ||
            !add_parameter(symbol, offset, size)) {
            return false;
        }
    }
    return false;
}

static bool parse_text(struct sim_image *image, const char *text)
{
    image->declared = true;
    text += strcspn(text, "\n");
    while (*text) {
        text++;
        size_t length = strcspn(text, "\n");
        if (!parse_line(image, text, length)) {
            fprintf(stderr,
                    "simgpu: a module image has the line \"%.*s\"; allowed: \"kernel NAME "
                    "OFFSET:SIZE ...\" and \"global NAME BYTES\".\n",
                    (int)length, text);
            return false;
        }
        text += length;
    }
    return true;
}

struct sim_image *sim_image_parse(const void *data)
{
    struct sim_image *image = calloc(1, sizeof *image);
    if (!image) {
        return NULL;
    }
    image->references = 1;
    bool is_text =
        memcmp(data, TEXT_MARK, 4) == 0 && strncmp(data, TEXT_MARK, strlen(TEXT_MARK)) == 0;
    if (!add_built_in(image) || (is_text && !parse_text(image, data))) {
        sim_image_release(image);
        return NULL;
    }
    return image;
}

struct sim_image *sim_image_retain(struct sim_image *image)
{
    image->references++;
    return image;
}

void sim_image_release(struct sim_image *image)
{
    if (--image->references) {
        return;
    }
    for (struct sim_symbol *symbol = image->symbols, *next; symbol; symbol = next) {
        next = symbol->next;
        free(symbol->name);
        free(symbol);
    }
    free(image);
}

char *sim_image_read(const char *path)
{
    FILE *file = fopen(path, "rbe");
    char *data = NULL;
    if (!file) {
        return NULL;
    }
    if (fseek(file, 0, SEEK_END) == 0) {
        long length = ftell(file);
        rewind(file);
        data = length >= 0 ? calloc(1, (size_t)length + sizeof TEXT_MARK) : NULL;
        if (data && fread(data, 1, (size_t)length, file) != (size_t)length) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

static const struct sim_symbol *find(struct sim_image *image, const char *name, bool is_global)
{
    for (const struct sim_symbol *symbol = image->symbols; symbol; symbol = symbol->next) {
        if (symbol->is_global == is_global && strcmp(symbol->name, name) == 0) {
            return symbol;
        }
    }
    if (image->declared) {
        return NULL;
    }
    struct sim_symbol *symbol = add_symbol(image, name, strlen(name));
    if (symbol) {
        symbol->is_global = is_global;
        symbol->global_bytes = UNDECLARED_GLOBAL_BYTES;
    }
    return symbol;
}

const struct sim_symbol *sim_image_kernel(struct sim_image *image, const char *name)
{
    return find(image, name, false);
}

const struct sim_symbol *sim_image_global(struct sim_image *image, const char *name)
{
    return find(image, name, true);
}

unsigned sim_image_kernel_count(const struct sim_image *image)
{
    unsigned count = 0;
    for (const struct sim_symbol *symbol = image->symbols; symbol; symbol = symbol->next) {
        count += !symbol->is_global;
    }
    return count;
}
