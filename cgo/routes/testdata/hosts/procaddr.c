// procaddr.c: asks the driver's cuGetProcAddress, or the library's in its place, for what the
// arguments say, one `form:name:version:flags` each, and prints code, status and function. Forms:
// v1 and v2; v2- gives no place for the status; self1 and self2 ask the function that
// cuGetProcAddress gives for itself.
#include "host.h"

typedef int get_v1_fn(const char *, void **, int, uint64_t);
typedef int get_v2_fn(const char *, void **, int, uint64_t, int *);

// "weir/EXPORT" for the library's wrapper of an export, "driver/EXPORT" for the driver's own, or
// "null".
static const char *identify(const void *function) {
    static char text[128];
    const char *(*ask)(const void *) =
        (const char *(*)(const void *))dlsym(RTLD_DEFAULT, "cuTestExport");
    const char *export = ask && function ? ask(function) : NULL;
    Dl_info info;
    if (!function)
        return "null";
    if (export)
        snprintf(text, sizeof(text), "weir/%s", export);
    else if (dladdr(function, &info) && info.dli_saddr == function)
        snprintf(text, sizeof(text), "driver/%s", info.dli_sname);
    else
        snprintf(text, sizeof(text), "?/%s", owner(function));
    return text;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_v1_fn *get_v1 = (get_v1_fn *)dlsym(driver, "cuGetProcAddress");
    get_v2_fn *get_v2 = (get_v2_fn *)dlsym(driver, "cuGetProcAddress_v2");
    for (int i = 1; i < argc; i++) {
        char *form = strtok(argv[i], ":"), *name = strtok(NULL, ":");
        int version = atoi(strtok(NULL, ":"));
        uint64_t flags = (uint64_t)atoi(strtok(NULL, ":"));
        void *untouched = argv, *function = untouched;
        int status = -1, code;
        if (!strcmp(name, "EMPTY"))
            name = "";
        void *self = NULL;
        if (!strncmp(form, "self", 4))
            get_v1("cuGetProcAddress", &self, form[4] == '1' ? 11030 : 12000, 0);
        if (!strcmp(form, "v1"))
            code = get_v1(name, &function, version, flags);
        else if (!strcmp(form, "self1"))
            code = ((get_v1_fn *)self)(name, &function, version, flags);
        else if (!strcmp(form, "self2"))
            code = ((get_v2_fn *)self)(name, &function, version, flags, &status);
        else
            code = get_v2(name, &function, version, flags, !strcmp(form, "v2-") ? NULL : &status);
        printf("%s:%s:%d:%d %d %d %s\n", form, name, version, (int)flags, code, status,
               function == untouched ? "untouched" : identify(function));
    }
    return 0;
}
