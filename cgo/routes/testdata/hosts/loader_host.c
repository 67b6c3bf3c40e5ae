// loader_host.c: loads loader.so (argv[1]) and lets it load its plugin, without and with
// RTLD_DEEPBIND.
#include "host.h"

int main(int argc, char **argv) {
    void *loader = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!loader) {
        printf("failed %s\n", dlerror());
        return 1;
    }
    void *(*open)(int) = (void *(*)(int))dlsym(loader, "loader_open");
    const void *(*find)(void) = (const void *(*)(void))dlsym(loader, "loader_default");
    show("default", find());
    show("own", dlsym(RTLD_DEFAULT, "cuInit"));
    void *plain = open(RTLD_NOW);
    printf("plain %s\n", plain ? "loaded" : dlerror());
    if (plain)
        dlclose(plain);
    void *deep = open(RTLD_NOW | RTLD_DEEPBIND);
    printf("deep %s\n", deep ? "loaded" : dlerror());
    void (*run)(void) = deep ? (void (*)(void))dlsym(deep, "plugin_run") : NULL;
    if (run)
        run();
    printf("calls %d\n", calls("cuInit"));
    return 0;
}
