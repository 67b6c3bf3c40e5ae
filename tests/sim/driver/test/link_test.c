// link_test.c: the linker: texts of which one declares what another defines, fat binaries, results
// of before, and what is refused.
#define _GNU_SOURCE
#include "test_driver.h"
#include "test_fatbin.h"

#define HEADER ".version 7.0\n.target sm_70\n.address_size 64\n"

static uint32_t word_at(CUdeviceptr at) {
    uint32_t word;
    OK(cuMemcpyDtoH_v2(&word, at, sizeof word));
    return word;
}

static char caller[] =
    HEADER "// of two\n"
           ".extern .func (.param .b32 r) scaled (.param .b32 x);\n"
           ".extern .global .align 4 .u32 factor;\n"
           ".visible .global .align 4 .u32 result;\n"
           ".visible .entry run(.param .u32 x) {\n"
           "  .reg .u64 %rd<2>; .reg .u32 %r<4>;\n"
           "  ld.param.u32 %r1,[x]; mov.u64 %rd1,factor; ld.global.u32 %r3,[%rd1];\n"
           "  add.u32 %r1,%r1,%r3;\n"
           "  { .param .b32 a; .param .b32 b; st.param.b32 [a],%r1; call (b), scaled, (a);\n"
           "    ld.param.b32 %r2,[b]; }\n"
           "  mov.u64 %rd1,result; st.global.u32 [%rd1],%r2; ret; }\n";
static char callee[] = ".version 6.5\n.target sm_60\n.address_size 64\n"
                       ".visible .global .align 4 .u32 factor = 10; /* the other */\n"
                       ".visible .func (.param .b32 r) scaled (.param .b32 x) {\n"
                       "  .reg .u32 %r<3>; ld.param.b32 %r1,[x]; mul.lo.u32 %r2,%r1,3;\n"
                       "  st.param.b32 [r],%r2; ret; }\n";

static void links_two_texts(void) {
    uint64_t before = free_bytes();
    CUlinkState state;
    void *image, *again;
    size_t bytes;
    CUmodule module;
    CUfunction function;
    CUdeviceptr result;
    uint32_t x = 4;
    void *params[] = {&x};
    OK(cuLinkCreate_v2(0, NULL, NULL, &state));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, caller, sizeof caller, "a", 0, NULL, NULL));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, callee, sizeof callee - 1, "b", 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &bytes));
    CHECK_EQ(bytes, strlen(image) + 1);
    OK(cuLinkComplete(state, &again, &bytes));
    CHECK(again == image);
    CHECK_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, callee, sizeof callee, "c", 0, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
    OK(cuModuleLoadData(&module, image));
    OK(cuLinkDestroy(state));
    CHECK_EQ(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
    OK(cuModuleGetFunction(&function, module, "run"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuModuleGetGlobal_v2(&result, NULL, module, "result"));
    CHECK_EQ(word_at(result), (4 + 10) * 3);
    OK(cuModuleUnload(module));
    CHECK_EQ(free_bytes(), before);
}

static const char first_text[] = HEADER ".visible .entry first() { ret; }\n";
static const char second_text[] = HEADER ".visible .entry second() { ret; }\n";

// What was linked can be linked again, and so can the text of a fat binary.
static void links_again(void) {
    static uint8_t fat[16384];
    CUlinkState first, second;
    void *image;
    size_t bytes;
    CUmodule module;
    CUfunction function;
    OK(cuLinkCreate_v2(0, NULL, NULL, &first));
    OK(cuLinkAddData_v2(first, CU_JIT_INPUT_PTX, caller, sizeof caller, "a", 0, NULL, NULL));
    OK(cuLinkAddData_v2(first, CU_JIT_INPUT_PTX, callee, sizeof callee, "b", 0, NULL, NULL));
    OK(cuLinkComplete(first, &image, &bytes));
    OK(cuLinkCreate_v2(0, NULL, NULL, &second));
    OK(cuLinkAddData_v2(second, CU_JIT_INPUT_CUBIN, image, bytes, "c", 0, NULL, NULL));
    size_t fat_bytes = fat_binary(fat, first_text, second_text);
    CHECK_EQ(
        cuLinkAddData_v2(second, CU_JIT_INPUT_FATBINARY, fat, fat_bytes - 1, "d", 0, NULL, NULL),
        CUDA_ERROR_INVALID_IMAGE);
    OK(cuLinkAddData_v2(second, CU_JIT_INPUT_FATBINARY, fat, fat_bytes, "d", 0, NULL, NULL));
    OK(cuLinkComplete(second, &image, &bytes));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&function, module, "run"));
    OK(cuModuleGetFunction(&function, module, "first"));
    OK(cuModuleUnload(module));
    OK(cuLinkDestroy(first));
    OK(cuLinkDestroy(second));
}

static void links_that_fail(void) {
    char log[200] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log}, *image;
    CUlinkState state;
    size_t bytes;
    OK(cuLinkCreate_v2(2, options, values, &state));
    CHECK_EQ(cuLinkComplete(state, &image, &bytes), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, "nonsense", 8, "a", 0, NULL, NULL),
             CUDA_ERROR_INVALID_PTX);
    CHECK(log[0]);
    CHECK_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_LIBRARY, "!<arch>", 7, "a", 0, NULL, NULL),
             CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, "\177ELF", 4, "a", 0, NULL, NULL),
             CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuLinkAddData_v2(state, (CUjitInputType)77, "x", 1, "a", 0, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL),
             CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_EQ(
        cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, callee, sizeof callee, "a", 0, NULL, NULL),
        CUDA_ERROR_INVALID_IMAGE);
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, caller, sizeof caller, "a", 0, NULL, NULL));
    CHECK_EQ(cuLinkComplete(state, &image, &bytes), CUDA_ERROR_INVALID_PTX);
    OK(cuLinkDestroy(state));
    CHECK_EQ(cuLinkCreate_v2(0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLinkComplete(NULL, &image, &bytes), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSetCurrent(NULL));
    CHECK_EQ(cuLinkCreate_v2(0, NULL, NULL, &state), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(primary));
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(links_two_texts),
        TEST(links_again),
        TEST(links_that_fail),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
