// routes.c: reaches the driver by the route that its first argument names, calls cuInit(0) once by
// it, and prints what it found: the object that cuInit lies in and how often the wrapper was
// called.
#include "host.h"

#include <errno.h>

static int fail(const char *what) {
    const char *error = dlerror();
    printf("failed %s: %s\n", what, error ? error : "no error");
    return 1;
}

static int by_handle(const char *path, int flags, int versioned) {
    void *driver = dlopen(path, flags);
    if (!driver)
        return fail("dlopen");
    errno = 77;
    init_fn *init =
        (init_fn *)(versioned ? dlvsym(driver, "cuInit", "GLIBC_2.2.5") : dlsym(driver, "cuInit"));
    printf("errno %d\n", errno);
    if (!init)
        return fail("dlsym");
    show("cuInit", (void *)init);
    printf("code %d\n", init(0));
    show("cuEventRecord", dlsym(driver, "cuEventRecord"));
    show("cuNoSuchName", dlsym(driver, "cuNoSuchName"));
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    printf("calls %d\n", calls("cuInit"));
    return 0;
}

// The same function by three routes: each time the same wrapper.
static int by_three(void) {
    int bad = by_handle("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, 0) ||
              by_handle("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, 1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(const char *, void **, int, uint64_t) =
        (int (*)(const char *, void **, int, uint64_t))dlsym(driver, "cuGetProcAddress");
    void *init = NULL;
    printf("get %d\n", get("cuInit", &init, 12000, 0));
    printf("code %d\n", init ? ((init_fn *)init)(0) : -1);
    printf("total %d\n", calls("cuInit"));
    return bad;
}

// dlsym taken from the C library by hand.
static int by_own_dlsym(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))dlsym(libc, "dlsym");
    show("dlsym", (void *)find);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    show("cuInit", find(driver, "cuInit"));
    return 0;
}

// What may not be found: cuInit while no driver is loaded, or while it is out of the caller's
// sight.
static int by_default(void) {
    dlerror();
    show("before", dlsym(RTLD_DEFAULT, "cuInit"));
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    show("before_main", dlsym(dlopen(NULL, RTLD_NOW), "cuInit"));
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return fail("dlopen");
    show("local", dlsym(RTLD_DEFAULT, "cuInit"));
    dlerror();
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return fail("dlopen");
    show("global", dlsym(RTLD_DEFAULT, "cuInit"));
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    show("next", dlsym(RTLD_NEXT, "cuInit"));
    show("main", dlsym(dlopen(NULL, RTLD_NOW), "cuInit"));
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    return 0;
}

// A plugin that is linked with the driver. argv[2] is its path, argv[3] the flags beside
// RTLD_NOW/LAZY.
static int by_plugin(const char *path, const char *mode) {
    int flags = strstr(mode, "lazy") ? RTLD_LAZY : RTLD_NOW;
    if (strstr(mode, "deep"))
        flags |= RTLD_DEEPBIND;
    void *plugin = dlopen(path, flags);
    if (!plugin)
        return fail("dlopen");
    printf("dlerror %s\n", dlerror() ? "set" : "null");
    void (*run)(void) = (void (*)(void))dlsym(plugin, "plugin_run");
    if (!run)
        return fail("dlsym");
    run();
    printf("calls %d\n", calls("cuInit"));
    return 0;
}

// Unloads the driver and loads it again, elsewhere if it can.
static int by_reload(void) {
    int bad = 0;
    for (int i = 0; i < 3; i++) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        init_fn *init = driver ? (init_fn *)dlsym(driver, "cuInit") : NULL;
        if (!init)
            return fail("dlsym");
        show("cuInit", (void *)init);
        bad |= init(0);
        dlclose(driver);
        // Something else takes the place where the driver was.
        if (!dlopen("libm.so.6", RTLD_NOW))
            return fail("dlopen");
        void *libm = dlopen(i ? "libutil.so.1" : "libresolv.so.2", RTLD_NOW);
        show("gone", dlsym(RTLD_DEFAULT, "cuInit"));
        (void)libm;
    }
    printf("code %d\ncalls %d\n", bad, calls("cuInit"));
    return 0;
}

// Whether the pages of a plugin's constants are writable after it was loaded and bound.
static int by_constants(const char *path) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    void *const *constants = plugin ? dlsym(plugin, "plugin_table") : NULL;
    if (!constants)
        return fail("dlsym");
    show("cuInit", constants[0]);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], writable = '?';
    while (maps && fgets(line, sizeof(line), maps)) {
        uintptr_t low, high;
        char access;
        if (sscanf(line, "%lx-%lx r%c", &low, &high, &access) == 3 && (uintptr_t)constants >= low &&
            (uintptr_t)constants < high)
            writable = access == 'w' ? '1' : '0';
    }
    printf("writable %c\n", writable);
    return 0;
}

int main(int argc, char **argv) {
    const char *route = argc > 1 ? argv[1] : "";
    if (!strcmp(route, "local"))
        return by_handle("libcuda.so.1", RTLD_NOW | RTLD_LOCAL, 0);
    if (!strcmp(route, "deepbind"))
        return by_handle("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND, 0);
    if (!strcmp(route, "dlvsym"))
        return by_handle("libcuda.so.1", RTLD_NOW, 1);
    if (!strcmp(route, "path") && argc > 2)
        return by_handle(argv[2], RTLD_NOW, 0);
    if (!strcmp(route, "three"))
        return by_three();
    if (!strcmp(route, "own"))
        return by_own_dlsym();
    if (!strcmp(route, "default"))
        return by_default();
    if (!strcmp(route, "plugin") && argc > 3)
        return by_plugin(argv[2], argv[3]);
    if (!strcmp(route, "readonly") && argc > 2)
        return by_constants(argv[2]);
    if (!strcmp(route, "reload"))
        return by_reload();
    fprintf(stderr, "routes: unknown route \"%s\"\n", route);
    return 2;
}
