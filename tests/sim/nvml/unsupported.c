// The functions that NVML exports and the simulated one does not answer: they say so.
#include "query.h"

static int unsupported(void) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin(&query);
    return code == NVML_OK ? sim_nvml_end(NVML_NOT_SUPPORTED) : code;
}

// Their arguments are not looked at, so they need none: the caller clears them away.
#define NVML_ANSWERED(name)
#define NVML_LATER(name)
#define NVML_UNSUPPORTED(name)                                                                     \
    __attribute__((visibility("default"))) int name(void);                                         \
    int name(void) {                                                                               \
        return unsupported();                                                                      \
    }
#include "functions.def"
