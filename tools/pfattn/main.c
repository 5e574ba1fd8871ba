/* SPDX-License-Identifier: Apache-2.0 */
/* The command `pfattn`: one word says what to do, the rest belongs to it. */
#include <stdio.h>
#include <string.h>

#include "tool.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", info_main, "what this build holds and which devices it can use"},
    {"run", run_main, "compute attention, its derivatives, or a merge, from and to .npy files"},

    {"check", check_main, "compare a backend with the reference, operation by operation"},
    {"bench", bench_main, "measure time and TFLOP/s"},
    {"tune", tune_main, "measure which kernels are best on a device, for later runs"},
};

static void print_help(FILE *out) {
    fprintf(out,
            "pfattn %s: fused attention O = softmax(alpha Q K^T + bias) V and its derivatives,\n"
            "on NVIDIA and AMD GPUs and on the CPU.\n\nUsage: pfattn COMMAND [OPTION]...\n\n",
            pfattn_version_string());
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        fprintf(out, "  %-7s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n`pfattn COMMAND --help` tells more, `pfattn --version` gives the version.\n\n"
          "Exit status: 0 done; 1 a check failed; 2 bad usage or argument; 3 unsupported problem;\n"
          "4 backend or device not available; 5 file error.\n",
          out);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return TOOL_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("pfattn %s\n", pfattn_version_string());
        return TOOL_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!strcmp(argv[1], commands[i].name)) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return tool_error(TOOL_USAGE,
                      "unknown command '%s'; the commands are info, run, check, bench, "
                      "tune",
                      argv[1]);
}
