/* The memshim executable: finds the command and hands over. */
#include <stdio.h>
#include <string.h>

#include "report/cli_diff.h"
#include "report/cli_report.h"
#include "shim/cli/cli.h"
#include "shim/cli/probe.h"
#include "shim/options.h"
#include "shim/stats.h"

static void write_out(void *ctx, const char *text)
{
    (void)ctx;
    (void)fputs(text, stdout);
}

static int print_table(int argc, char **argv, void (*print)(bool, ms_options_write_t, void *))
{
    bool markdown = argc == 2 && strcmp(argv[1], "--markdown") == 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        (void)printf("Usage: memshim %s [--markdown]\n", argv[0]);
        return 0;
    }
    if (argc > 1 && !markdown) {
        (void)fprintf(stderr, "memshim %s: '%s' is not known; --markdown is the only option\n",
                      argv[0], argv[argc - 1]);
        return MS_CLI_WRONG_CALL;
    }
    print(markdown, write_out, NULL);
    return 0;
}

static int options_command(int argc, char **argv)
{
    return print_table(argc, argv, ms_options_print);
}

static int coverage_command(int argc, char **argv)
{
    return print_table(argc, argv, ms_hooks_print);
}

static int statistics_command(int argc, char **argv)
{
    return print_table(argc, argv, ms_statistics_print);
}

static int version_command(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)printf("memshim %s\n", MEMSHIM_VERSION);
    return 0;
}

static int help_command(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage; /* null: for memshim itself, and not told */
} commands[] = {
    {"run", ms_cli_run, "run a command under memshim: memshim run [--fraction F] -- COMMAND..."},
    {"report", ms_cli_report, "say where the memory was: memshim report [DIR|TRACE...]"},
    {"top", ms_cli_top, "how running processes stand: memshim top [DIR|PID] [--once] [--json]"},
    {"diff", ms_cli_diff,
     "what one run, rank or moment held that another did not: memshim diff A B"},
    {"replay", ms_cli_replay,
     "would a recorded run have fitted: memshim replay TRACE [--cap SIZE|--min-cap]"},
    {"doctor", ms_cli_doctor,
     "what this machine can do: driver, devices, spill, PyTorch: memshim doctor [--json]"},
    {"options", options_command, "every option, its values and its default"},
    {"coverage", coverage_command, "every function of the driver that memshim stands in front of"},
    {"statistics", statistics_command, "every figure that is told while a process runs"},
    {"version", version_command, "the version"},
    {"probe-host", ms_cli_probe_host, NULL},
    {"probe-mapping", ms_cli_probe_mapping, NULL},
    {"help", help_command, "this text; help COMMAND (or COMMAND --help) says more about one"},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int help_command(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)printf("Usage: memshim COMMAND ...\n"
                 "A memory pool, a hard cap and a post-mortem for training on CUDA devices.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (commands[i].usage != NULL) {
            (void)printf("  %-10s %s\n", commands[i].name, commands[i].usage);
        }
    }
    (void)printf("\nWithout this executable: LD_PRELOAD=libmemshim.so COMMAND...\n");
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    /* help COMMAND is COMMAND --help. */
    char *asked[] = {argv[0], argc > 2 ? argv[2] : NULL, (char[]){"--help"}, NULL};
    if (argc > 2 && strcmp(name, "help") == 0) {
        name = asked[1];
        argv = asked;
        argc = 3;
    }
    const struct command *command = find_command(name);
    if (command == NULL) {
        if (argc > 1) {
            (void)fprintf(stderr, "memshim: there is no command '%s'; memshim help lists them\n",
                          name);
        } else {
            (void)help_command(0, NULL);
        }
        return MS_CLI_WRONG_CALL;
    }
    int status = command->run(argc - 1, argv + 1);
    if (fflush(stdout) != 0 && status == 0) {
        perror("memshim: standard output");
        status = 1;
    }
    return status;
}
