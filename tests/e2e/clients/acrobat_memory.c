// acrobat_memory.c: the acrobat's acts that take device memory of every kind, and hand it to
// others.
#include "acrobat.h"

#include "../../sim/driver/cuda_abi.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Plain, pitched, managed ----

static int free_plain(uint64_t address, uint64_t bytes) {
    (void)bytes;
    return (int)cuMemFree_v2(address);
}

static void do_plain(char **words) {
    CUdeviceptr address = 0;
    CUresult code = cuMemAlloc_v2(&address, number_of(words[1]));
    answer_slot(code, free_plain, address, 0);
}

// "pitch WIDTH HEIGHT"
static void do_pitch(char **words) {
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult code =
        cuMemAllocPitch_v2(&address, &pitch, number_of(words[1]), number_of(words[2]), 4);
    answer_slot(code, free_plain, address, 0);
}

static void do_managed(char **words) {
    CUdeviceptr address = 0;
    CUresult code = cuMemAllocManaged(&address, number_of(words[1]), CU_MEM_ATTACH_GLOBAL);
    answer_slot(code, free_plain, address, 0);
}

// ---- Arrays ----

static int free_array(uint64_t array, uint64_t bytes) {
    (void)bytes;
    return (int)cuArrayDestroy((CUarray)array);
}

static int free_mipmap(uint64_t mipmap, uint64_t bytes) {
    (void)bytes;
    return (int)cuMipmappedArrayDestroy((CUmipmappedArray)mipmap);
}

// "array WIDTH HEIGHT", "array3d WIDTH HEIGHT DEPTH", "mipmap WIDTH HEIGHT LEVELS": of floats.
static void do_array(char **words) {
    CUDA_ARRAY_DESCRIPTOR shape = {number_of(words[1]), number_of(words[2]), CU_AD_FORMAT_FLOAT, 1};
    CUarray array = NULL;
    CUresult code = cuArrayCreate_v2(&array, &shape);
    answer_slot(code, free_array, (uint64_t)array, 0);
}

static CUDA_ARRAY3D_DESCRIPTOR shape_of(char **words, size_t depth) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = number_of(words[1]),
                                     .Height = number_of(words[2]),
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 2};
    return shape;
}

static void do_array3d(char **words) {
    CUDA_ARRAY3D_DESCRIPTOR shape = shape_of(words, number_of(words[3]));
    CUarray array = NULL;
    CUresult code = cuArray3DCreate_v2(&array, &shape);
    answer_slot(code, free_array, (uint64_t)array, 0);
}

static void do_mipmap(char **words) {
    CUDA_ARRAY3D_DESCRIPTOR shape = shape_of(words, 0);
    CUmipmappedArray mipmap = NULL;
    CUresult code = cuMipmappedArrayCreate(&mipmap, &shape, (unsigned)number_of(words[3]));
    answer_slot(code, free_mipmap, (uint64_t)mipmap, 0);
}

// ---- Graphs ----

struct play {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr left;  // what a launch leaves allocated, 0: nothing
    int launched;
};

static int free_graph(uint64_t handle, uint64_t bytes) {
    struct play *play = (struct play *)handle;
    (void)bytes;
    CUresult code = play->left && play->launched ? cuMemFree_v2(play->left) : CUDA_SUCCESS;
    if (!code)
        code = cuGraphExecDestroy(play->exec);
    if (!code)
        code = cuGraphDestroy(play->graph);
    free(play);
    return (int)code;
}

static CUresult capture(struct play *play, size_t bytes) {
    CUdeviceptr address;
    CUstream own = stream_of("1");
    CUresult code = cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (code)
        return code;
    code = cuMemAllocAsync(&address, bytes, own);
    if (!code)
        code = cuMemFreeAsync(address, own);
    CUresult ended = cuStreamEndCapture(own, &play->graph);
    return code ? code : ended;
}

static CUresult build(struct play *play, size_t bytes, int leave) {
    CUDA_MEM_ALLOC_NODE_PARAMS take = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_now}},
        .bytesize = bytes};
    CUgraphNode taken, given;
    CUresult code = cuGraphCreate(&play->graph, 0);
    if (!code)
        code = cuGraphAddMemAllocNode(&taken, play->graph, NULL, 0, &take);
    if (!code && !leave)
        code = cuGraphAddMemFreeNode(&given, play->graph, &taken, 1, take.dptr);
    if (leave)
        play->left = take.dptr;
    return code;
}

// "graph captured|freed|left BYTES": how it is made, and whether a launch leaves its memory
// allocated.
static void do_graph(char **words) {
    struct play *play = calloc(1, sizeof(*play));
    size_t bytes = number_of(words[2]);
    CUresult code = !strcmp(words[1], "captured") ? capture(play, bytes)
                                                  : build(play, bytes, !strcmp(words[1], "left"));
    if (!code)
        code = cuGraphInstantiateWithFlags(&play->exec, play->graph,
                                           CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    answer_slot(code, free_graph, (uint64_t)play, 0);
}

// "launch GRAPH STREAM"
static void do_launch(char **words) {
    struct play *play = (struct play *)handle_in(words[1]);
    CUresult code = cuGraphLaunch(play->exec, stream_of(words[2]));
    if (!code)
        play->launched = 1;
    answer_code(code);
}

// ---- Created and mapped ----

static int free_handle(uint64_t handle, uint64_t bytes) {
    (void)bytes;
    return (int)cuMemRelease(handle);
}

static void do_create(char **words) {
    CUmemAllocationProp props = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_now},
    };
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = cuMemCreate(&handle, number_of(words[1]), &props, 0);
    answer_slot(code, free_handle, handle, number_of(words[1]));
}

static int free_mapping(uint64_t address, uint64_t bytes) {
    CUresult code = cuMemUnmap(address, bytes);
    return (int)(code ? code : cuMemAddressFree(address, bytes));
}

// "map HANDLE"
static void do_map(char **words) {
    CUdeviceptr address = 0;
    size_t bytes = bytes_in(words[1]);
    CUresult code = cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (!code)
        code = cuMemMap(address, bytes, 0, handle_in(words[1]), 0);
    answer_slot(code, free_mapping, address, bytes);
}

// "retain MAPPING": one more handle of what is mapped there.
static void do_retain(char **words) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = cuMemRetainAllocationHandle(&handle, (void *)handle_in(words[1]));
    answer_slot(code, free_handle, handle, bytes_in(words[1]));
}

// ---- Between processes ----

// "fd HANDLE": a descriptor of it, which stays open.
static void do_fd(char **words) {
    int fd = -1;
    CUresult code = cuMemExportToShareableHandle(&fd, handle_in(words[1]),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code)
        answer_code(code);
    else
        answer("ok %d", fd);
}

static void do_close_fd(char **words) {
    answer_code(close((int)number_of(words[1])));
}

// "import PID FD BYTES"
static void do_import(char **words) {
    char path[64];
    CUmemGenericAllocationHandle handle = 0;
    snprintf(path, sizeof(path), "/proc/%s/fd/%s", words[1], words[2]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CUresult code = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    answer_slot(code, free_handle, handle, number_of(words[3]));
}

// "ipc PLAIN"
static void do_ipc(char **words) {
    CUipcMemHandle handle;
    CUresult code = cuIpcGetMemHandle(&handle, handle_in(words[1]));
    answer_bytes((int)code, &handle, sizeof(handle));
}

static int free_opened(uint64_t address, uint64_t bytes) {
    (void)bytes;
    return (int)cuIpcCloseMemHandle(address);
}

// "open HANDLE"
static void do_open(char **words) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    bytes_of(&handle, sizeof(handle), words[1]);
    CUresult code = cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    answer_slot(code, free_opened, address, 0);
}

const struct act memory_acts[] = {
    {"plain", do_plain},
    {"pitch", do_pitch},
    {"managed", do_managed},
    {"array", do_array},
    {"array3d", do_array3d},
    {"mipmap", do_mipmap},
    {"graph", do_graph},
    {"launch", do_launch},
    {"create", do_create},
    {"map", do_map},
    {"retain", do_retain},
    {"fd", do_fd},
    {"close-fd", do_close_fd},
    {"import", do_import},
    {"ipc", do_ipc},
    {"open", do_open},
    {NULL, NULL},
};
