/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor finds out about Python, PyTorch and this machine's libraries. */
#include "shim/cli/doctor/host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/tables/python_layout.h"

#define LONGEST_SECONDS 20u

/* Prints one line each, in the order in which they are read. */
static const char script[] =
    "import importlib.util, os, re, sys, sysconfig\n"
    "version = cuda = nccl = ''\n"
    "reports = False\n"
    "spec = importlib.util.find_spec('torch')\n"
    "if spec is not None and spec.submodule_search_locations:\n"
    "    folder = spec.submodule_search_locations[0]\n"
    "    def text(name):\n"
    "        try:\n"
    "            with open(os.path.join(folder, name), 'rb') as file:\n"
    "                return file.read()\n"
    "        except OSError:\n"
    "            return b''\n"
    "    def value(name):\n"
    "        pattern = rb'^' + name + rb'\\b[^=\\n]*= *[\\'\"]([^\\'\"]*)'\n"
    "        found = re.search(pattern, text('version.py'), re.M)\n"
    "        return found.group(1).decode() if found else ''\n"
    "    version, cuda = value(b'__version__'), value(b'cuda')\n"
    "    name = b'_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE'\n"
    "    reports = name in text('lib/libc10.so')\n"
    "    version = version or 'of an unknown version'\n"
    /* A wheel has its version in the name of a folder beside it; a distribution's file in its own
     * name. */
    "    site = os.path.dirname(folder)\n"
    "    for name in os.listdir(site):\n"
    "        found = re.fullmatch(r'nvidia_nccl_cu\\d+-([\\d.]+)\\.dist-info', name)\n"
    "        nccl = found.group(1) if found else nccl\n"
    "if not nccl:\n"
    "    found = re.search(r'\\.so\\.(\\d+\\.\\d+\\.\\d+)$', os.path.realpath(\n"
    "        '/usr/lib/x86_64-linux-gnu/libnccl.so.2'))\n"
    "    nccl = found.group(1) if found else ''\n"
    "free = bool(sysconfig.get_config_var('Py_GIL_DISABLED'))\n"
    "for line in (sys.executable, sys.implementation.name, '%d %d %d' % sys.version_info[:3],\n"
    "             int(free), version, cuda, int(reports), nccl):\n"
    "    print(line)\n";

static void become_python(const char *interpreter, int out)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)alarm(LONGEST_SECONDS);
    if (nowhere >= 0 && dup2(nowhere, STDIN_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0) {
        (void)execlp(interpreter, interpreter, "-c", script, (char *)NULL);
    }
    _exit(1);
}

/* The next line without its newline; false if there is none. */
static bool next_line(FILE *from, char *line, size_t line_bytes)
{
    if (fgets(line, (int)line_bytes, from) == NULL) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static bool read_answer(FILE *from, struct ms_doctor_python *out)
{
    char line[64] = "";
    bool whole = next_line(from, out->path, sizeof(out->path)) &&
                 next_line(from, out->implementation, sizeof(out->implementation)) &&
                 next_line(from, line, sizeof(line)) &&
                 sscanf(line, "%u %u %u", &out->major, &out->minor, &out->micro) == 3 &&
                 next_line(from, line, sizeof(line));
    out->free_threaded = line[0] == '1';
    whole = whole && next_line(from, out->torch, sizeof(out->torch)) &&
            next_line(from, out->torch_cuda, sizeof(out->torch_cuda)) &&
            next_line(from, line, sizeof(line));
    out->torch_reports = line[0] == '1';
    return whole && next_line(from, out->nccl, sizeof(out->nccl));
}

void ms_doctor_ask_python(const char *interpreter, struct ms_doctor_python *out)
{
    int ends[2];
    int status = 0;
    memset(out, 0, sizeof(*out));
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        become_python(interpreter, ends[1]);
    }
    (void)close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    bool whole = child > 0 && from != NULL && read_answer(from, out);
    if (from != NULL) {
        (void)fclose(from);
    } else {
        (void)close(ends[0]);
    }
    out->found = child > 0 && waitpid(child, &status, 0) == child && status == 0 && whole;
    out->readable = strcmp(out->implementation, "cpython") == 0 && !out->free_threaded &&
                    ms_python_version_known(out->major << 8 | out->minor);
}

bool ms_doctor_finds_library(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL) != NULL;
}
