// plugin.c: an object that is linked with the driver and with a dlsym of its own binding: called
// directly, through a table of constants, and by lookup.
#include "host.h"

int cuInit(unsigned flags);
int cuEventRecord(void);

// Constant, so that the loader writes it once and makes its page read-only.
extern init_fn *const plugin_table[];
init_fn *const plugin_table[] = {cuInit};
static int (*const record[])(void) = {cuEventRecord};

void plugin_run(void) {
    printf("code %d\n", cuInit(0) + plugin_table[0](0));
    show("table", (void *)plugin_table[0]);
    show("launch", (void *)record[0]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    init_fn *init = (init_fn *)dlsym(driver, "cuInit");
    show("dlsym", (void *)init);
    printf("code %d\n", init(0));
}
