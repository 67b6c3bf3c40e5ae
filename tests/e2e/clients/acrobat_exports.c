// acrobat_exports.c: the acrobat's acts that use one export of the driver each: those that take
// memory, and those that submit work. A test compares their names with symbols.def.
#include "acrobat.h"

#include "../../sim/driver/cuda_abi.h"
#include "../../sim/driver/test/test_fatbin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What is taken, and how it is given back.
struct taken {
    give_back_fn *give_back;
    uint64_t handle, bytes;
};

// Takes about so many bytes; `from` names what another process hands out.
typedef CUresult take_fn(struct taken *taken, size_t bytes, const char *from);

__typeof__(cuMemAllocAsync) cuMemAllocAsync_ptsz;
__typeof__(cuMemAllocFromPoolAsync) cuMemAllocFromPoolAsync_ptsz;
__typeof__(cuLaunchKernel) cuLaunchKernel_ptsz;
__typeof__(cuLaunchCooperativeKernel) cuLaunchCooperativeKernel_ptsz;
__typeof__(cuLaunchHostFunc) cuLaunchHostFunc_ptsz;
__typeof__(cuGraphLaunch) cuGraphLaunch_ptsz;
__typeof__(cuGraphUpload) cuGraphUpload_ptsz;

// ---- Memory ----

#define GIVE(name, call)                                                                           \
    static int name(uint64_t handle, uint64_t bytes) {                                             \
        (void)bytes;                                                                               \
        return (int)call;                                                                          \
    }
GIVE(give_plain, cuMemFree_v2(handle))
GIVE(give_array, cuArrayDestroy((CUarray)handle))
GIVE(give_mipmap, cuMipmappedArrayDestroy((CUmipmappedArray)handle))
GIVE(give_handle, cuMemRelease(handle))
GIVE(give_opened, cuIpcCloseMemHandle(handle))
GIVE(give_external, cuDestroyExternalMemory((CUexternalMemory)handle))
GIVE(give_module, cuModuleUnload((CUmodule)handle))
GIVE(give_library, cuLibraryUnload((CUlibrary)handle))

static int give_async(uint64_t address, uint64_t bytes) {
    CUresult code = cuMemFreeAsync(address, NULL);
    (void)bytes;
    return (int)(code ? code : cuCtxSynchronize());
}

#define TAKE(name, give, ...)                                                                      \
    static CUresult name(struct taken *taken, size_t bytes, const char *from) {                    \
        (void)from;                                                                                \
        taken->give_back = give;                                                                   \
        __VA_ARGS__                                                                                \
    }

// Of one channel of 32 bits, 256 wide.
#define SHAPE(bytes)                                                                               \
    { .Width = 256, .Height = (bytes) / 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 }

TAKE(plain, give_plain, return cuMemAlloc_v2((CUdeviceptr *)&taken->handle, bytes);)
TAKE(managed, give_plain,
     return cuMemAllocManaged((CUdeviceptr *)&taken->handle, bytes, CU_MEM_ATTACH_GLOBAL);)
TAKE(pitched, give_plain, size_t pitch;
     return cuMemAllocPitch_v2((CUdeviceptr *)&taken->handle, &pitch, 1024, bytes / 1024, 4);)
TAKE(array, give_array, CUDA_ARRAY_DESCRIPTOR shape = SHAPE(bytes);
     return cuArrayCreate_v2((CUarray *)&taken->handle, &shape);)
TAKE(array_v1, give_array, CUDA_ARRAY_DESCRIPTOR_v1 shape = SHAPE((unsigned)bytes);
     return cuArrayCreate((CUarray *)&taken->handle, &shape);)
TAKE(array3d, give_array, CUDA_ARRAY3D_DESCRIPTOR shape = SHAPE(bytes);
     return cuArray3DCreate_v2((CUarray *)&taken->handle, &shape);)
TAKE(array3d_v1, give_array, CUDA_ARRAY3D_DESCRIPTOR_v1 shape = SHAPE((unsigned)bytes);
     return cuArray3DCreate((CUarray *)&taken->handle, &shape);)
TAKE(mipmap, give_mipmap, CUDA_ARRAY3D_DESCRIPTOR shape = SHAPE(bytes);
     return cuMipmappedArrayCreate((CUmipmappedArray *)&taken->handle, &shape, 1);)
TAKE(async, give_async, return cuMemAllocAsync((CUdeviceptr *)&taken->handle, bytes, NULL);)
TAKE(async_thread, give_async,
     return cuMemAllocAsync_ptsz((CUdeviceptr *)&taken->handle, bytes, NULL);)

static CUmemoryPool own_pool(void) {
    static CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    if (!pool)
        cuMemPoolCreate(&pool, &props);
    return pool;
}

TAKE(pooled, give_async,
     return cuMemAllocFromPoolAsync((CUdeviceptr *)&taken->handle, bytes, own_pool(), NULL);)
TAKE(pooled_thread, give_async,
     return cuMemAllocFromPoolAsync_ptsz((CUdeviceptr *)&taken->handle, bytes, own_pool(), NULL);)
TAKE(created, give_handle, CUmemAllocationProp props = {0}; props.type = 1; props.location.type = 1;
     return cuMemCreate((CUmemGenericAllocationHandle *)&taken->handle, bytes, &props, 0);)

// ---- Memory of others; `from` is "/proc/PID/fd/N" or a handle's bytes ----

// The library learns the size of what it imports when that is mapped.
static int give_imported(uint64_t address, uint64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = cuMemRetainAllocationHandle(&handle, (void *)address);
    if (!code)
        code = cuMemUnmap(address, bytes);
    if (!code)
        code = cuMemAddressFree(address, bytes);
    return (int)(code ? code : cuMemRelease(handle));
}

TAKE(imported, give_imported, CUmemGenericAllocationHandle handle = 0;
     int fd = open(from, O_RDWR | O_CLOEXEC);
     CUresult code = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
     close(fd); if (code) return code; taken->bytes = bytes;
     code = cuMemAddressReserve((CUdeviceptr *)&taken->handle, bytes, 0, 0, 0);
     if (!code) code = cuMemMap(taken->handle, bytes, 0, handle, 0);
     CUresult released = cuMemRelease(handle); return code ? code : released;)
TAKE(external, give_external,
     CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                .size = bytes};
     handle.handle.fd = open(from, O_RDWR | O_CLOEXEC);
     CUresult code = cuImportExternalMemory((CUexternalMemory *)&taken->handle, &handle);
     if (code) close(handle.handle.fd); return code;)
TAKE(opened, give_opened, CUipcMemHandle handle; (void)bytes;
     bytes_of(&handle, sizeof(handle), from);
     return cuIpcOpenMemHandle_v2((CUdeviceptr *)&taken->handle, handle, 1);)
TAKE(opened_v1, give_opened, CUipcMemHandle handle; (void)bytes;
     bytes_of(&handle, sizeof(handle), from);
     return cuIpcOpenMemHandle((CUdeviceptr *)&taken->handle, handle, 1);)

// ---- Code: a variable of so many bytes ----

static char *code_of(size_t bytes) {
    static char text[256];
    snprintf(text, sizeof(text),
             ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .b8 big[%zu];\n",
             bytes);
    return text;
}

static const char *file_of(size_t bytes) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/weir-acrobat-%d.ptx", (int)getpid());
    FILE *file = fopen(path, "we");
    if (file) {
        fputs(code_of(bytes), file);
        fclose(file);
    }
    return path;
}

TAKE(module_file, give_module, const char *path = file_of(bytes);
     CUresult code = cuModuleLoad((CUmodule *)&taken->handle, path); unlink(path); return code;)
TAKE(module, give_module, return cuModuleLoadData((CUmodule *)&taken->handle, code_of(bytes));)
TAKE(module_ex, give_module,
     return cuModuleLoadDataEx((CUmodule *)&taken->handle, code_of(bytes), 0, NULL, NULL);)
TAKE(module_fat, give_module, uint8_t image[1024]; const char *text = code_of(bytes);
     fat_binary(image, text, text);
     return cuModuleLoadFatBinary((CUmodule *)&taken->handle, image);)
TAKE(library, give_library,
     return cuLibraryLoadData((CUlibrary *)&taken->handle, code_of(bytes), NULL, NULL, 0, NULL,
                              NULL, 0);)
TAKE(library_file, give_library, const char *path = file_of(bytes);
     CUresult code = cuLibraryLoadFromFile((CUlibrary *)&taken->handle, path, NULL, NULL, 0, NULL,
                                           NULL, 0);
     unlink(path); return code;)

// ---- Graphs: the launch takes the memory ----

static CUgraph graph_taking(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS take = {.bytesize = bytes};
    CUgraphNode node, freed;
    CUgraph graph = NULL;
    take.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    take.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (!cuGraphCreate(&graph, 0) && !cuGraphAddMemAllocNode(&node, graph, NULL, 0, &take))
        cuGraphAddMemFreeNode(&freed, graph, &node, 1, take.dptr);
    return graph;
}

static int give_graph(uint64_t exec, uint64_t graph) {
    CUresult code = cuCtxSynchronize();
    if (!code)
        code = cuGraphExecDestroy((CUgraphExec)exec);
    if (!code)
        code = cuGraphDestroy((CUgraph)graph);
    return (int)(code ? code : cuDeviceGraphMemTrim(0));
}

#define LAUNCH_TAKING(name, call)                                                                  \
    TAKE(name, give_graph, CUgraph graph = graph_taking(bytes); CUgraphExec exec = NULL;           \
         CUresult code = cuGraphInstantiateWithFlags(&exec, graph, 0);                             \
         if (!code) code = call(exec, NULL); taken->handle = (uint64_t)exec;                       \
         taken->bytes = (uint64_t)graph; if (code) give_graph(taken->handle, taken->bytes);        \
         return code;)
LAUNCH_TAKING(graph, cuGraphLaunch)
LAUNCH_TAKING(graph_thread, cuGraphLaunch_ptsz)
LAUNCH_TAKING(upload, cuGraphUpload)
LAUNCH_TAKING(upload_thread, cuGraphUpload_ptsz)

static const struct {
    const char *name;
    take_fn *take;
} takes[] = {
    {"cuMemAlloc_v2", plain},
    {"cuMemAllocManaged", managed},
    {"cuMemAllocPitch_v2", pitched},
    {"cuArrayCreate_v2", array},
    {"cuArrayCreate", array_v1},
    {"cuArray3DCreate_v2", array3d},
    {"cuArray3DCreate", array3d_v1},
    {"cuMipmappedArrayCreate", mipmap},
    {"cuMemAllocAsync", async},
    {"cuMemAllocAsync_ptsz", async_thread},
    {"cuMemAllocFromPoolAsync", pooled},
    {"cuMemAllocFromPoolAsync_ptsz", pooled_thread},
    {"cuMemCreate", created},
    {"cuMemImportFromShareableHandle", imported},
    {"cuImportExternalMemory", external},
    {"cuIpcOpenMemHandle", opened_v1},
    {"cuIpcOpenMemHandle_v2", opened},
    {"cuModuleLoad", module_file},
    {"cuModuleLoadData", module},
    {"cuModuleLoadDataEx", module_ex},
    {"cuModuleLoadFatBinary", module_fat},
    {"cuLibraryLoadData", library},
    {"cuLibraryLoadFromFile", library_file},
    {"cuGraphLaunch", graph},
    {"cuGraphLaunch_ptsz", graph_thread},
    {"cuGraphUpload", upload},
    {"cuGraphUpload_ptsz", upload_thread},
};

// "take EXPORT BYTES [FROM]"
static void do_take(char **words) {
    struct taken taken = {0};
    for (size_t i = 0; i < sizeof(takes) / sizeof(takes[0]); i++) {
        if (strcmp(takes[i].name, words[1]) != 0)
            continue;
        CUresult code = takes[i].take(&taken, number_of(words[2]), words[3]);
        answer_slot(code, taken.give_back, taken.handle, taken.bytes);
        return;
    }
    answer("wrong export %s", words[1]);
}

// ---- Launches ----

static const char marking[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry mark(.param .u64 to, .param .u32 value) {\n"
                              ".reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
                              "ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [value];\n"
                              "cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r1; ret; }\n";

struct marked {
    CUfunction kernel;
    CUdeviceptr to;
    unsigned value;
    void *parameters[2];
    unsigned by_host;  // what a host function was given
};

typedef CUresult run_fn(struct marked *m);

#define RUN(name, ...)                                                                             \
    static CUresult name(struct marked *m) {                                                       \
        __VA_ARGS__                                                                                \
    }
#define ONE 1, 1, 1, 1, 1, 1, 0, NULL

RUN(kernel, return cuLaunchKernel(m->kernel, ONE, m->parameters, NULL);)
RUN(kernel_thread, return cuLaunchKernel_ptsz(m->kernel, ONE, m->parameters, NULL);)
RUN(kernel_ex, CUlaunchConfig config = {ONE, NULL, 0};
    return cuLaunchKernelEx(&config, m->kernel, m->parameters, NULL);)
RUN(kernel_ex_thread, CUlaunchConfig config = {ONE, NULL, 0};
    return cuLaunchKernelEx_ptsz(&config, m->kernel, m->parameters, NULL);)
RUN(together, return cuLaunchCooperativeKernel(m->kernel, ONE, m->parameters);)
RUN(together_thread, return cuLaunchCooperativeKernel_ptsz(m->kernel, ONE, m->parameters);)
RUN(on_devices, CUstream own; CUresult code = cuStreamCreate(&own, CU_STREAM_NON_BLOCKING);
    CUDA_LAUNCH_PARAMS launch = {m->kernel, 1, 1, 1, 1, 1, 1, 0, own, m->parameters};
    return code ? code : cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0);)

static CUresult set_up(struct marked *m) {
    CUresult code = cuFuncSetBlockShape(m->kernel, 1, 1, 1);
    if (!code)
        code = cuParamSetSize(m->kernel, 12);
    if (!code)
        code = cuParamSetv(m->kernel, 0, &m->to, sizeof(m->to));
    return code ? code : cuParamSeti(m->kernel, 8, m->value);
}

RUN(old, CUresult code = set_up(m); return code ? code : cuLaunch(m->kernel);)
RUN(grid, CUresult code = set_up(m); return code ? code : cuLaunchGrid(m->kernel, 1, 1);)
RUN(grid_async, CUresult code = set_up(m);
    return code ? code : cuLaunchGridAsync(m->kernel, 1, 1, NULL);)

static void by_host(void *user) {
    struct marked *m = user;
    m->by_host = m->value;
}

RUN(host, return cuLaunchHostFunc(NULL, by_host, m);)
RUN(host_thread, return cuLaunchHostFunc_ptsz(NULL, by_host, m);)

static const struct {
    const char *name;
    run_fn *run;
} runs[] = {
    {"cuLaunch", old},
    {"cuLaunchGrid", grid},
    {"cuLaunchGridAsync", grid_async},
    {"cuLaunchKernel", kernel},
    {"cuLaunchKernel_ptsz", kernel_thread},
    {"cuLaunchKernelEx", kernel_ex},
    {"cuLaunchKernelEx_ptsz", kernel_ex_thread},
    {"cuLaunchCooperativeKernel", together},
    {"cuLaunchCooperativeKernel_ptsz", together_thread},
    {"cuLaunchCooperativeKernelMultiDevice", on_devices},
    {"cuLaunchHostFunc", host},
    {"cuLaunchHostFunc_ptsz", host_thread},
};

// "run EXPORT VALUE": a launch that writes the value; what was written.
static void do_run(char **words) {
    struct marked m = {.value = (unsigned)number_of(words[2])};
    unsigned found = 0;
    CUmodule module = NULL;
    m.parameters[0] = &m.to;
    m.parameters[1] = &m.value;
    CUresult code = cuModuleLoadData(&module, marking);
    if (!code)
        code = cuModuleGetFunction(&m.kernel, module, "mark");
    if (!code)
        code = cuMemAlloc_v2(&m.to, sizeof(m.value));
    for (size_t i = 0; !code && i < sizeof(runs) / sizeof(runs[0]); i++) {
        if (!strcmp(runs[i].name, words[1]))
            code = runs[i].run(&m);
    }
    if (!code)
        code = cuCtxSynchronize();
    if (!code)
        code = cuMemcpyDtoH_v2(&found, m.to, sizeof(found));
    if (!code)
        code = cuMemFree_v2(m.to);
    if (!code)
        code = cuModuleUnload(module);
    if (code)
        answer_code(code);
    else
        answer("ok %u", m.by_host ? m.by_host : found);
}

// "exports take|run": their names.
static void do_exports(char **words) {
    char text[900] = "";
    if (!strcmp(words[1], "take")) {
        for (size_t i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
            snprintf(text + strlen(text), 48, " %s", takes[i].name);
    } else {
        for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
            snprintf(text + strlen(text), 48, " %s", runs[i].name);
    }
    answer("ok%s", text);
}

const struct act export_acts[] = {
    {"take", do_take}, {"run", do_run}, {"exports", do_exports}, {NULL, NULL}};
