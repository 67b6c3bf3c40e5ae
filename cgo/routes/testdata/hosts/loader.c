// loader.c: an object with a RUNPATH of its own that loads a plugin by name. Only relative to this
// object is the plugin found.
#include "host.h"

void *loader_open(int flags);
void *loader_open(int flags) {
    void *handle = dlopen("plugin_hidden.so", flags);
    return handle;
}

// Whether the driver, which this object needs and which is loaded for it alone, is found from here.
const void *loader_default(void);
const void *loader_default(void) {
    return dlsym(RTLD_DEFAULT, "cuInit");
}
