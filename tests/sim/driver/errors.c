// errors.c: names and texts of the error codes. The texts are this project's own.
#include "driver.h"

struct error {
    int code;
    const char *name, *text;
};

static const struct error errors[] = {
#define E(code, name, text) {code, "CUDA_" name, text},
#include "errors.inc"
#undef E
};

static const struct error *find(CUresult code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == (int)code)
            return &errors[i];
    return NULL;
}

API cuGetErrorName(CUresult code, const char **name) {
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    const struct error *error = find(code);
    *name = error ? error->name : NULL;
    return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorString(CUresult code, const char **text) {
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    const struct error *error = find(code);
    *text = error ? error->text : NULL;
    return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
