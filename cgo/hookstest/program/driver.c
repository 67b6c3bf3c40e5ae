// driver.c: a driver all of whose functions write down their arguments and give the answer that was
// ordered, but for those that only tell something.
#include "program.h"

// Addresses of devices lie here.
enum { DEVICE_LOW = 0x1000, DEVICE_HIGH = 0x2000 };

void *weir_real_table[WEIR_FN_COUNT];

static uintptr_t current = 0x100;  // a context's device is its handle's third digit, less one

// Whether it is a function that tells something, and what.
static int tells(enum weir_fn fn, const uintptr_t *words, uintptr_t *code) {
    void *out = (void *)words[0];
    *code = CUDA_SUCCESS;
    switch ((int)fn) {
    case WEIR_FN_cuPointerGetAttribute:
        *(unsigned *)out = CU_MEMORYTYPE_DEVICE;
        if (words[1] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || words[2] < DEVICE_LOW ||
            words[2] >= DEVICE_HIGH)
            *code = CUDA_ERROR_INVALID_VALUE;
        return 1;
    case WEIR_FN_cuThreadExchangeStreamCaptureMode:
        return 1;
    case WEIR_FN_cuStreamIsCapturing:
    case WEIR_FN_cuStreamIsCapturing_ptsz:
        *(int *)words[1] = (int)now.capturing;
        return 1;
    case WEIR_FN_cuStreamGetId:
    case WEIR_FN_cuStreamGetId_ptsz:
        *(unsigned long long *)words[1] = 1;
        return 1;
    case WEIR_FN_cuStreamGetCtx:
        *(uintptr_t *)words[1] = words[0] & ~(uintptr_t)0xff;
        return 1;
    case WEIR_FN_cuCtxGetCurrent:
        *(uintptr_t *)out = current;
        return 1;
    case WEIR_FN_cuCtxPushCurrent_v2:
        current = words[0];
        return 1;
    case WEIR_FN_cuCtxPopCurrent_v2:
        *(uintptr_t *)out = current;
        current = 0x100;
        return 1;
    case WEIR_FN_cuCtxGetDevice:
        *(int *)out = (int)(current >> 8) - 1;
        return 1;
    case WEIR_FN_cuDevicePrimaryCtxGetState:
        *(int *)words[2] = (int)now.active;
        return 1;
    }
    return 0;
}

static uintptr_t drive(enum weir_fn fn, const char *name, const uintptr_t *words) {
    uintptr_t code;
    if (tells(fn, words, &code))
        return code;
    happened("call %s", name);
    for (unsigned i = 0; i < WORDS; i++)
        happened("%c%" PRIxPTR, i ? ',' : ' ', words[i]);
    if (fn == WEIR_FN_cuDevicePrimaryCtxRetain)
        *(uintptr_t *)words[0] = (words[1] + 1) << 8;
    return now.answer;
}

#define FUNCTION(export)                                                                           \
    static uintptr_t real_##export(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,             \
                                   uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h,             \
                                   uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l) {           \
        return drive(WEIR_FN_##export, #export,                                                    \
                     (uintptr_t[WORDS]){a, b, c, d, e, f, g, h, i, j, k, l});                      \
    }
#define HOOK(export, asked, since, streams, class) FUNCTION(export)
#define LATER(export, asked, since, streams, class, waits) FUNCTION(export)
#define PASS(export, asked, since, streams, class) FUNCTION(export)
#include "../../symbols.def"

void *weir_real_find(enum weir_fn fn) {
    static any_fn *const reals[] = {
#define HOOK(export, asked, since, streams, class) real_##export,
#define LATER(export, asked, since, streams, class, waits) real_##export,
#define PASS(export, asked, since, streams, class) real_##export,
#include "../../symbols.def"
    };
    return (void *)reals[fn];
}
