/* SPDX-License-Identifier: Apache-2.0 */
/* `pfattn info`: the version, the backends of this build, and their devices. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "json.h"
#include "select.h"
#include "session.h"
#include "tool.h"

static bool as_json;

static const arg_option options[] = {
    {"json", NULL, ARG_FLAG, &as_json, NULL, "print JSON"},
};

/* Which tuning file is in force is known once the device is open. */
static void print_tuning(pfattn_backend backend, int32_t index, json *writer) {
    pfattn_handle_options wanted = {sizeof wanted, backend, index};
    pfattn_handle handle;
    bool opened = pfattn_create(&wanted, &handle) == PFATTN_SUCCESS;
    if (opened && handle->backend->capabilities) {
        const pf_tuned *tuned = handle->backend->capabilities(handle->device)->tuned;
        if (writer) {
            json_text(writer, "tuning_file", tuned->path);
            json_integer(writer, "tuning_entries", tuned->count);
        } else if (tuned->path[0]) {
            printf("    tuning file %s: %d entries in use\n", tuned->path, tuned->count);
        } else {
            printf("    no tuning file; `pfattn tune` makes one\n");
        }
    } else if (!opened && !writer) {
        printf("    cannot be opened: %s\n", pfattn_last_error());
    } else if (!opened) {
        json_text(writer, "error", pfattn_last_error());
    }
    pfattn_destroy(opened ? handle : NULL);
}

static void print_device(pfattn_backend backend, int32_t index, json *writer) {
    pfattn_device_info info = PFATTN_DEVICE_INFO_INIT;
    if (pfattn_device_query(backend, index, &info) != PFATTN_SUCCESS) {
        if (!writer) {
            printf("  device %d: %s\n", (int)index, pfattn_last_error());
            return;
        }
        json_object(writer, NULL);
        json_integer(writer, "index", index);
        json_text(writer, "error", pfattn_last_error());
        json_close_object(writer);
        return;
    }
    if (!writer) {
        printf("  device %d: %s, %s, runs target %s\n", (int)index, info.name, info.arch,
               info.target);
        printf("    %d compute units, %.1f GiB of memory", (int)info.compute_units,
               (double)info.memory_bytes / (1 << 30));
        if (info.shared_bytes > 0) {
            printf(", %.0f KiB shared per workgroup, driver %d", (double)info.shared_bytes / 1024,
                   (int)info.driver_version);
        }
        fputc('\n', stdout);
        print_tuning(backend, index, NULL);
        return;
    }
    json_object(writer, NULL);
    json_integer(writer, "index", index);
    json_text(writer, "name", info.name);
    json_text(writer, "arch", info.arch);
    json_text(writer, "target", info.target);
    json_integer(writer, "compute_units", info.compute_units);
    json_integer(writer, "memory_bytes", info.memory_bytes);
    json_integer(writer, "shared_bytes", info.shared_bytes);
    json_integer(writer, "driver_version", info.driver_version);
    print_tuning(backend, index, writer);
    json_close_object(writer);
}

static void print_backend(pfattn_backend backend, json *writer) {
    pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
    if (pfattn_backend_query(backend, &info) != PFATTN_SUCCESS) {
        return;
    }
    if (writer) {
        json_object(writer, NULL);
        json_text(writer, "name", info.name);
        json_bool(writer, "compiled_in", info.compiled_in);
        json_integer(writer, "device_count", info.device_count);
        json_text(writer, "detail", info.detail);
        json_array(writer, "devices");
    } else {
        /* A detail that is an error already begins with the backend's name. */
        size_t prefix = strlen(info.name);
        bool named = !strncmp(info.detail, info.name, prefix) && info.detail[prefix] == ':';
        printf("%s: %s\n", info.name, info.detail + (named ? prefix + 2 : 0));
    }
    for (int32_t i = 0; i < info.device_count; i++) {
        print_device(backend, i, writer);
    }
    if (writer) {
        json_close_array(writer);
        json_close_object(writer);
    }
}

int info_main(int argc, char **argv) {
    arg_command command = {
        .usage = "pfattn info [--json]",
        .summary =
            "Print the version, each backend of this build (and why it cannot be used, where "
            "it cannot),\nand each device, with the tuning file in force.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    int code = args_parse(&command, argc, argv);
    if (code >= 0) {
        return code;
    }
    json writer = {.out = stdout};
    if (as_json) {
        json_object(&writer, NULL);
        json_text(&writer, "version", pfattn_version_string());
        json_array(&writer, "backends");
    } else {
        printf("pfattn %s\n", pfattn_version_string());
    }
    for (int id = PFATTN_BACKEND_REF; id <= PFATTN_BACKEND_HIP; id++) {
        print_backend((pfattn_backend)id, as_json ? &writer : NULL);
    }
    if (as_json) {
        json_close_array(&writer);
        json_close_object(&writer);
    }
    return TOOL_DONE;
}
