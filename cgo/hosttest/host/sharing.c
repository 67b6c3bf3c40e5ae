// sharing.c: the test program's commands for created memory and memory between processes.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../hooks.h"
#include "../../state.h"
#include "driver.h"
#include "host.h"

static void say_bytes(CUresult result, const CUshareable *handle) {
    if (result != CUDA_SUCCESS) {
        say(result, 0);
        return;
    }
    printf("ok ");
    for (size_t i = 0; i < sizeof(handle->bytes); i++)
        printf("%02x", handle->bytes[i]);
    printf("\n");
}

static CUshareable bytes_of(const char *text) {
    CUshareable handle = {{0}};
    for (size_t i = 0; text && i < sizeof(handle.bytes) && text[2 * i] && text[2 * i + 1]; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        handle.bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return handle;
}

struct creation {
    uint64_t bytes, handle;
    CUmemAllocationProp prop;
    CUresult result;
};

static void *create(void *argument) {
    struct creation *creation = argument;
    creation->result = weir_cuMemCreate(&creation->handle, creation->bytes, &creation->prop, 0);
    return NULL;
}

// create BYTES [GPU [LOCATION]], on a thread of its own: it has no context.
static void do_create(char **words) {
    pthread_t thread;
    struct creation creation = {.bytes = number(words[1])};
    creation.prop.type = 1;
    creation.prop.location.id = (int)number(words[2]);
    creation.prop.location.type = words[2] && words[3] ? (int)number(words[3]) : 1;
    pthread_create(&thread, NULL, create, &creation);
    pthread_join(thread, NULL);
    say(creation.result, creation.handle);
}

static void do_mapping(char **words) {
    uint64_t handle = 0;
    if (!strcmp(words[0], "map")) {
        uint64_t offset = words[4] ? number(words[4]) : 0;
        say(weir_cuMemMap(number(words[1]), number(words[2]), offset, number(words[3]), 0), 0);
    } else if (!strcmp(words[0], "unmap")) {
        say(weir_cuMemUnmap(number(words[1]), number(words[2])), 0);
    } else if (!strcmp(words[0], "retainhandle")) {
        CUresult result =
            weir_cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)number(words[1]));
        say(result, handle);
    } else {
        say(weir_cuMemRelease(number(words[1])), 0);
    }
}

// A descriptor of another process of the test: PID and number.
static int open_of(char **words) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/fd/%s", words[1], words[2] ? words[2] : "");
    return open(path, O_RDWR | O_CLOEXEC);
}

static void do_shareable(char **words) {
    CUshareable bytes = {{0}};
    uint64_t handle = 0;
    int fd = -1;
    if (!strcmp(words[0], "fd")) {
        CUresult result = weir_cuMemExportToShareableHandle(
            &fd, number(words[1]), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        say(result, (uint64_t)fd);
    } else if (!strcmp(words[0], "fabric")) {
        CUresult result = weir_cuMemExportToShareableHandle(&bytes, number(words[1]),
                                                            CU_MEM_HANDLE_TYPE_FABRIC, 0);
        say_bytes(result, &bytes);
    } else if (!strcmp(words[0], "importfabric")) {
        bytes = bytes_of(words[1]);
        CUresult result =
            weir_cuMemImportFromShareableHandle(&handle, &bytes, CU_MEM_HANDLE_TYPE_FABRIC);
        say(result, handle);
    } else {
        fd = open_of(words);
        CUresult result = weir_cuMemImportFromShareableHandle(
            &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
        say(result, handle);
    }
}

static void do_ipc(char **words) {
    CUshareable handle = {{0}};
    CUdeviceptr pointer = 0;
    if (!strcmp(words[0], "ipc")) {
        CUresult result = weir_cuIpcGetMemHandle(&handle, number(words[1]));
        say_bytes(result, &handle);
    } else if (!strcmp(words[0], "open")) {
        CUresult result = weir_cuIpcOpenMemHandle_v2(&pointer, bytes_of(words[1]), 1);
        say(result, pointer);
    } else {
        say(weir_cuIpcCloseMemHandle(number(words[1])), 0);
    }
}

// external PID FD BYTES, unexternal HANDLE
static void do_external(char **words) {
    CUexternalMemory memory = NULL;
    if (!strcmp(words[0], "unexternal")) {
        say(weir_cuDestroyExternalMemory((CUexternalMemory)(uintptr_t)number(words[1])), 0);
        return;
    }
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD};
    desc.handle.fd = open_of(words);
    desc.size = number(words[3]);
    CUresult result = weir_cuImportExternalMemory(&memory, &desc);
    close(desc.handle.fd);
    say(result, (uint64_t)(uintptr_t)memory);
}

// How many handles, mappings, pieces and ties the library knows of.
static void do_known(char **words) {
    const struct weir_state *state = weir_state_page;
    (void)words;
    printf("ok %u %u %u %u\n", state->handles.live, state->mappings.live, state->pieces.live,
           state->ties.live);
}

static void do_nodes(char **words) {
    test_driver.nodes_only = (int)number(words[1]);
    say(0, 0);
}

static const struct {
    const char *name;
    void (*run)(char **words);
} commands[] = {
    {"create", do_create},
    {"map", do_mapping},
    {"unmap", do_mapping},
    {"retainhandle", do_mapping},
    {"unhandle", do_mapping},
    {"fd", do_shareable},
    {"importfd", do_shareable},
    {"fabric", do_shareable},
    {"importfabric", do_shareable},
    {"ipc", do_ipc},
    {"open", do_ipc},
    {"close", do_ipc},
    {"external", do_external},
    {"unexternal", do_external},
    {"known", do_known},
    {"nodes", do_nodes},
};

int test_sharing(char **words) {
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(words[0], commands[i].name)) {
            commands[i].run(words);
            return 1;
        }
    return 0;
}
