// code_test.c: modules, libraries and kernels, and what code takes of the card: its image and each
// variable, each rounded up to a granule, all of it back at the end.
#define _GNU_SOURCE
#include "test_driver.h"
#include "test_fatbin.h"

#include <pthread.h>
#include <unistd.h>

#define HEADER ".version 7.0\n.target sm_70\n.address_size 64\n"

// Adds the first `step` to a counter; another kernel has parameters.
static const char counting[] =
    HEADER ".visible .global .align 4 .u32 counter = 5;\n"
           ".visible .global .align 8 .b8 big[5000];\n"
           ".visible .const .align 4 .u32 step[3] = {3, 4, 5};\n"
           ".visible .entry count() {\n"
           "  .reg .u64 %rd<2>; .reg .u32 %r<4>;\n"
           "  mov.u64 %rd1,counter; ld.global.u32 %r1,[%rd1]; ld.const.u32 %r2,[step];\n"
           "  add.u32 %r1,%r1,%r2; st.global.u32 [%rd1],%r1; ret; }\n"
           ".visible .entry two(.param .u64 p, .param .align 8 .b8 s[24]) { ret; }\n";
#define VARIABLES (512 + 5120 + 512)

static const char shared_between_contexts[] =
    HEADER ".visible .global .attribute(.managed) .align 4 .u32 total = 7;\n"
           ".visible .global .align 4 .u32 own = 1;\n"
           ".visible .entry add_own() {\n"
           "  .reg .u64 %rd<3>; .reg .u32 %r<4>;\n"
           "  mov.u64 %rd1,total; mov.u64 %rd2,own; ld.global.u32 %r1,[%rd1];\n"
           "  ld.global.u32 %r2,[%rd2]; add.u32 %r1,%r1,%r2; add.u32 %r2,%r2,1;\n"
           "  st.global.u32 [%rd1],%r1; st.global.u32 [%rd2],%r2; ret; }\n";

static uint64_t granules(uint64_t bytes) {
    return (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

static uint32_t word_at(CUdeviceptr at) {
    uint32_t word;
    OK(cuMemcpyDtoH_v2(&word, at, sizeof word));
    return word;
}

static void launch_plain(CUfunction function) {
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

// ---- Modules ----

static void modules_take_their_bytes(void) {
    uint64_t before = free_bytes();
    CUmodule module, second;
    CUfunction function;
    CUdeviceptr counter, step;
    size_t bytes;
    OK(cuModuleLoadData(&module, counting));
    CHECK_EQ(before - free_bytes(), granules(strlen(counting)) + VARIABLES);
    OK(cuModuleLoadData(&second, counting));
    CHECK_EQ(before - free_bytes(), 2 * (granules(strlen(counting)) + VARIABLES));
    OK(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
    CHECK_EQ(bytes, 4);
    OK(cuModuleGetGlobal_v2(&step, &bytes, module, "step"));
    CHECK_EQ(bytes, 12);
    OK(cuModuleGetFunction(&function, module, "count"));
    launch_plain(function);
    launch_plain(function);
    OK(cuCtxSynchronize());
    CHECK_EQ(word_at(counter), 11);
    CHECK_EQ(cuMemFree_v2(counter), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    OK(cuModuleUnload(second));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuModuleGetFunction(&function, module, "count"), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_HANDLE);
}

// A load that does not fit, at whatever place, takes nothing; the next smaller room is enough.
static void loads_that_do_not_fit(void) {
    uint64_t before = free_bytes(), needs = granules(strlen(counting)) + VARIABLES;
    CUmodule module;
    for (uint64_t room = 0; room < needs; room += SIM_GRANULE) {
        CUdeviceptr fill = alloc(before - room);
        CHECK_EQ(cuModuleLoadData(&module, counting), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(free_bytes(), room);
        OK(cuMemFree_v2(fill));
    }
    CUdeviceptr fill = alloc(before - needs);
    OK(cuModuleLoadData(&module, counting));
    CHECK_EQ(free_bytes(), 0);
    OK(cuModuleUnload(module));
    OK(cuMemFree_v2(fill));
    // What cannot be compiled takes nothing either, and the log says why.
    char log[200] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CHECK_EQ(cuModuleLoadDataEx(&module, HEADER ".global .u32 a; nonsense", 2, options, values),
             CUDA_ERROR_INVALID_PTX);
    CHECK(log[0]);
    CHECK_EQ((uintptr_t)values[1], strlen(log) + 1);
    CHECK_EQ(cuModuleLoadData(&module, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    options[0] = (CUjit_option)1000;
    CHECK_EQ(cuModuleLoadDataEx(&module, counting, 2, options, values), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_EQ(free_bytes(), before);
}

static void modules_end_with_their_context(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    CUmodule module;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, counting));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

// Of two texts for different devices the newest that runs here is loaded.
static void fat_binaries(void) {
    static uint8_t image[16384];
    uint64_t before = free_bytes();
    struct {
        uint32_t magic, version;
        const void *fatbin, *unused;
    } wrapper = {0x466243b1u, 1, image, NULL};
    CUmodule module;
    CUfunction function;
    fat_binary(image, counting, shared_between_contexts);
    for (unsigned wrapped = 0; wrapped < 2; wrapped++) {
        OK(cuModuleLoadFatBinary(&module, wrapped ? (void *)&wrapper : image));
        CHECK_EQ(before - free_bytes(), granules(strlen(counting)) + VARIABLES);
        OK(cuModuleGetFunction(&function, module, "count"));
        CHECK_EQ(cuModuleGetFunction(&function, module, "add_own"), CUDA_ERROR_NOT_FOUND);
        OK(cuModuleUnload(module));
    }
    image[16] = 2;  // the first entry is machine code: only text for newer devices is left
    OK(cuModuleLoadFatBinary(&module, image));
    OK(cuModuleGetFunction(&function, module, "add_own"));
    OK(cuModuleUnload(module));
    CHECK_EQ(free_bytes(), before);
}

static void functions_of_a_module(void) {
    CUmodule module, got;
    CUfunction functions[4] = {0}, function;
    CUfunctionLoadingState state;
    CUtexref reference;
    const char *name;
    unsigned count;
    size_t offset, bytes;
    int mode;
    unsetenv("CUDA_MODULE_LOADING");
    OK(cuModuleGetLoadingMode(&mode));
    CHECK_EQ(mode, CU_MODULE_LAZY_LOADING);  // since driver 12.2
    OK(cuModuleLoadData(&module, counting));
    OK(cuModuleGetFunctionCount(&count, module));
    CHECK_EQ(count, 2);
    OK(cuModuleEnumerateFunctions(functions, 4, module));
    CHECK(functions[0] && functions[1] && !functions[2]);
    OK(cuFuncIsLoaded(&state, functions[0]));
    CHECK_EQ(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
    OK(cuFuncLoad(functions[0]));
    OK(cuFuncIsLoaded(&state, functions[0]));
    CHECK_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuModuleGetFunction(&function, module, "two"));
    CHECK(function == functions[1]);
    OK(cuFuncIsLoaded(&state, function));
    CHECK_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuFuncGetName(&name, function));
    CHECK(!strcmp(name, "two"));
    OK(cuFuncGetModule(&got, function));
    CHECK(got == module);
    OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
    CHECK(offset == 8 && bytes == 24);
    OK(cuFuncGetParamInfo(function, 0, &offset, NULL));
    CHECK_EQ(offset, 0);
    CHECK_EQ(cuFuncGetParamInfo(function, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuFuncLoad((CUfunction)&count), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuModuleGetTexRef(&reference, module, "texture"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuModuleGetFunctionCount(&count, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuModuleUnload(module));
}

// ---- Libraries ----

static void library_as_module(void) {
    uint64_t before = free_bytes(), code = granules(strlen(counting)) + VARIABLES;
    CUlibrary library, got_library;
    CUkernel kernel, kernels[4] = {0};
    CUmodule module;
    CUfunction function, again;
    CUdeviceptr counter, step;
    const char *name;
    unsigned count;
    size_t bytes;
    OK(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "count"));
    OK(cuLibraryGetKernelCount(&count, library));
    CHECK_EQ(count, 2);
    OK(cuLibraryEnumerateKernels(kernels, 4, library));
    CHECK(kernels[0] == kernel && kernels[1] && !kernels[2]);
    OK(cuKernelGetName(&name, kernels[1]));
    CHECK(!strcmp(name, "two"));
    OK(cuKernelGetParamInfo(kernels[1], 1, &bytes, NULL));
    CHECK_EQ(bytes, 8);
    OK(cuKernelGetLibrary(&got_library, kernel));
    CHECK(got_library == library);
    CHECK_EQ(free_bytes(), before);  // no context has needed it yet
    launch_plain((CUfunction)kernel);
    CHECK_EQ(before - free_bytes(), code);
    OK(cuKernelGetFunction(&function, kernel));
    launch_plain(function);
    OK(cuLibraryGetModule(&module, library));
    OK(cuModuleGetFunction(&again, module, "count"));
    CHECK(again == function);
    OK(cuCtxSynchronize());
    OK(cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
    CHECK_EQ(word_at(counter), 5 + 2 * 3);  // as a module's would be
    OK(cuLibraryGetGlobal(&step, NULL, library, "step"));
    CHECK_EQ(word_at(step + 8), 5);
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(before - free_bytes(), code);
    OK(cuLibraryUnload(library));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuKernelGetName(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_HANDLE);
}

static void bad_libraries(void) {
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr at;
    void *function;
    CUlibraryOption option = (CUlibraryOption)9;
    CHECK_EQ(cuLibraryLoadData(NULL, counting, NULL, NULL, 0, NULL, NULL, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLibraryLoadData(&library, "nonsense", NULL, NULL, 0, NULL, NULL, 0),
             CUDA_ERROR_INVALID_PTX);
    CHECK_EQ(cuLibraryLoadData(&library, counting, NULL, NULL, 0, &option, NULL, 1),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0),
             CUDA_ERROR_FILE_NOT_FOUND);
    option = CU_LIBRARY_BINARY_IS_PRESERVED;
    OK(cuLibraryLoadData(&library, counting, NULL, NULL, 0, &option, NULL, 1));
    CHECK_EQ(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuLibraryGetKernel(&kernel, NULL, "count"), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLibraryGetGlobal(&at, NULL, library, "none"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuLibraryGetManaged(&at, NULL, library, "counter"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuLibraryGetUnifiedFunction(&function, library, "count"), CUDA_ERROR_NOT_FOUND);
    OK(cuLibraryUnload(library));
}

static void library_from_file(void) {
    char path[] = "/tmp/weir-code-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, counting, strlen(counting)), (ssize_t)strlen(counting));
    close(fd);
    uint64_t before = free_bytes();
    CUlibrary library;
    CUmodule module, loaded;
    OK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetModule(&module, library));
    CHECK_EQ(before - free_bytes(), granules(strlen(counting)) + VARIABLES);
    OK(cuModuleLoad(&loaded, path));
    CHECK_EQ(before - free_bytes(), 2 * (granules(strlen(counting)) + VARIABLES));
    OK(cuModuleUnload(loaded));
    OK(cuLibraryUnload(library));
    CHECK_EQ(free_bytes(), before);
    unlink(path);
}

// Each context has its own variables, but for the managed ones.
static void library_in_two_contexts(void) {
    uint64_t before = free_bytes();
    CUlibrary library;
    CUkernel kernel;
    CUcontext second;
    CUdeviceptr own[2], total[2];
    OK(cuLibraryLoadData(&library, shared_between_contexts, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add_own"));
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuCtxPopCurrent_v2(NULL));
    for (unsigned i = 0; i < 2; i++) {
        OK(cuCtxPushCurrent_v2(i ? second : primary));
        launch_plain((CUfunction)kernel);
        launch_plain((CUfunction)kernel);
        OK(cuCtxSynchronize());
        OK(cuLibraryGetGlobal(&own[i], NULL, library, "own"));
        OK(cuLibraryGetManaged(&total[i], NULL, library, "total"));
        CHECK_EQ(word_at(own[i]), 3);
        OK(cuCtxPopCurrent_v2(NULL));
    }
    CHECK(own[0] != own[1]);
    CHECK_EQ(total[0], total[1]);
    CHECK_EQ(*(uint32_t *)(uintptr_t)total[0], 7 + 1 + 2 + 1 + 2);
    OK(cuCtxDestroy_v2(second));
    launch_plain((CUfunction)kernel);
    OK(cuCtxSynchronize());
    CHECK_EQ(*(uint32_t *)(uintptr_t)total[0], 16);
    OK(cuLibraryUnload(library));
    CHECK_EQ(free_bytes(), before);
}

// EAGER: in all contexts at once, and in each new one.
static void eager_loading(void) {
    uint64_t before = free_bytes(), code = granules(strlen(counting)) + VARIABLES;
    CUlibrary library;
    CUcontext second;
    CUmodule module;
    CUfunction function;
    CUfunctionLoadingState state;
    int mode;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    OK(cuModuleGetLoadingMode(&mode));
    CHECK_EQ(mode, CU_MODULE_EAGER_LOADING);
    OK(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_EQ(before - free_bytes(), code);
    OK(cuCtxCreate_v2(&second, 0, 0));
    CHECK_EQ(before - free_bytes(), 2 * code + 2 * MIB);
    OK(cuLibraryGetModule(&module, library));
    CHECK_EQ(before - free_bytes(), 2 * code + 2 * MIB);
    OK(cuModuleEnumerateFunctions(&function, 1, module));
    OK(cuFuncIsLoaded(&state, function));
    CHECK_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuLibraryUnload(library));
    CHECK_EQ(before - free_bytes(), 2 * MIB);
    OK(cuCtxDestroy_v2(second));
    // A load that does not fit everywhere is none.
    CUdeviceptr fill = alloc(before - code + 512);
    CHECK_EQ(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0),
             CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(fill));
    CHECK_EQ(free_bytes(), before);
    unsetenv("CUDA_MODULE_LOADING");
}

static void kernel_attributes(void) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    int value;
    OK(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "count"));
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    CHECK_EQ(value, 1024);
    CUfunction_attribute dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    OK(cuKernelSetAttribute(dynamic, 60000, kernel, 0));
    OK(cuKernelGetAttribute(&value, dynamic, kernel, 1));
    CHECK_EQ(value, 49152);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuFuncGetAttribute(&value, dynamic, function));
    CHECK_EQ(value, 60000);
    OK(cuKernelSetAttribute(dynamic, 70000, kernel, 0));
    OK(cuFuncGetAttribute(&value, dynamic, function));
    CHECK_EQ(value, 70000);
    CHECK_EQ(cuKernelSetAttribute(dynamic, 1 << 20, kernel, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, kernel, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuKernelGetAttribute(&value, dynamic, kernel, 7), CUDA_ERROR_INVALID_DEVICE);
    OK(cuKernelSetCacheConfig(kernel, 1, 0));
    CHECK_EQ(cuKernelSetCacheConfig(kernel, 4, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryUnload(library));
}

// Many threads need the same library in the same context at once: it is loaded there once.
static CUkernel shared_kernel;

static void *launch_it(void *unused) {
    OK(cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < 50; i++)
        launch_plain((CUfunction)shared_kernel);
    return unused;
}

static void loaded_once(void) {
    uint64_t before = free_bytes();
    CUlibrary library;
    CUdeviceptr counter;
    pthread_t threads[8];
    for (unsigned round = 0; round < 20; round++) {
        OK(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0));
        OK(cuLibraryGetKernel(&shared_kernel, library, "count"));
        for (unsigned i = 0; i < 8; i++)
            CHECK(!pthread_create(&threads[i], NULL, launch_it, NULL));
        for (unsigned i = 0; i < 8; i++)
            CHECK(!pthread_join(threads[i], NULL));
        OK(cuCtxSynchronize());
        CHECK_EQ(before - free_bytes(), granules(strlen(counting)) + VARIABLES);
        OK(cuLibraryGetGlobal(&counter, NULL, library, "counter"));
        CHECK_EQ(word_at(counter), 5 + 8 * 50 * 3);
        OK(cuLibraryUnload(library));
        CHECK_EQ(free_bytes(), before);
    }
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(modules_take_their_bytes),
        TEST(loads_that_do_not_fit),
        TEST(modules_end_with_their_context),
        TEST(fat_binaries),
        TEST(functions_of_a_module),
        TEST(library_as_module),
        TEST(bad_libraries),
        TEST(library_from_file),
        TEST(library_in_two_contexts),
        TEST(eager_loading),
        TEST(kernel_attributes),
        TEST(loaded_once),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
