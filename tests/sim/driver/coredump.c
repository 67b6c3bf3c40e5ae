// coredump.c: the settings of core dumps of the GPU: of a context, and of those to come.
//
// They can be set and read back; no dump is ever written, since an error here leaves no state of
// the device to look at. A context has settings of its own from the first that is set for it.
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 1024u

enum setting {
    ENABLE_ON_EXCEPTION = 1,
    TRIGGER_HOST = 2,
    LIGHTWEIGHT = 3,
    ENABLE_USER_TRIGGER = 4,
    FILE_NAME = 5,
    PIPE_NAME = 6,
    GENERATION_FLAGS = 7,
};

struct coredump {
    bool on[ENABLE_USER_TRIGGER + 1];
    int flags;
    char text[2][TEXT_BYTES_MAX];  // names of file and pipe
};

static struct coredump all = {
    .on = {[TRIGGER_HOST] = true},
    .text = {"core.cuda.%h.%p", "corepipe.cuda.%h.%p"},
};

void coredump_end(struct context *context) {
    free(context->coredump);
    context->coredump = NULL;
}

// Where a setting lies and how many bytes it has now; NULL: no such setting.
static void *place_of(struct coredump *settings, int setting, size_t *bytes) {
    if (setting >= ENABLE_ON_EXCEPTION && setting <= ENABLE_USER_TRIGGER) {
        *bytes = sizeof(bool);
        return &settings->on[setting];
    }
    if (setting == GENERATION_FLAGS) {
        *bytes = sizeof settings->flags;
        return &settings->flags;
    }
    if (setting != FILE_NAME && setting != PIPE_NAME)
        return NULL;
    char *text = settings->text[setting - FILE_NAME];
    *bytes = strlen(text) + 1;
    return text;
}

// Without a place for it only the size is told.
static CUresult get(struct coredump *settings, int setting, void *value, size_t *size) {
    size_t bytes;
    const void *place = place_of(settings, setting, &bytes);
    if (!place || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if (value && *size < bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (value)
        memcpy(value, place, bytes);
    *size = bytes;
    return CUDA_SUCCESS;
}

static CUresult set(struct coredump *settings, int setting, const void *value, const size_t *size) {
    size_t bytes;
    void *place = place_of(settings, setting, &bytes);
    if (!place || !value || !size)
        return CUDA_ERROR_INVALID_VALUE;
    bool text = setting == FILE_NAME || setting == PIPE_NAME;
    if (!text && *size < bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (text) {
        bytes = strnlen(value, *size);
        if (bytes >= TEXT_BYTES_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        ((char *)place)[bytes] = 0;
    }
    memcpy(place, value, bytes);
    return CUDA_SUCCESS;
}

API cuCoredumpGetAttributeGlobal(int setting, void *value, size_t *size) {
    CUresult rc = driver_enter();
    return rc ? rc : driver_leave(get(&all, setting, value, size));
}

API cuCoredumpSetAttributeGlobal(int setting, void *value, size_t *size) {
    CUresult rc = driver_enter();
    return rc ? rc : driver_leave(set(&all, setting, value, size));
}

API cuCoredumpGetAttribute(int setting, void *value, size_t *size) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    return driver_leave(get(context->coredump ? context->coredump : &all, setting, value, size));
}

// What users may trigger is settled before there are contexts.
API cuCoredumpSetAttribute(int setting, void *value, size_t *size) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (setting == ENABLE_USER_TRIGGER || setting == PIPE_NAME)
        return driver_leave(CUDA_ERROR_NOT_PERMITTED);
    if (!context->coredump) {
        context->coredump = malloc(sizeof *context->coredump);
        if (!context->coredump)
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        *context->coredump = all;
    }
    return driver_leave(set(context->coredump, setting, value, size));
}
