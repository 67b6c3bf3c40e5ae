// table.c: cuGetExportTable by each route: the driver's own function, pointer and contents.
#include "host.h"

typedef int table_fn(const void *const **table, const void *id);

int cuGetExportTable(const void *const **table, const void *id);

static void use(const char *route, table_fn *get) {
    const void *const *table = NULL;
    int code = get ? get(&table, "an id") : -1;
    printf("%s %s %d %s", route, owner((void *)get), code, owner(table));
    for (int i = 0; table && i < 4; i++)
        printf(" %s", (const char *)table[i]);
    printf("\n");
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = NULL;
    int (*get)(const char *, void **, int, uint64_t) =
        (int (*)(const char *, void **, int, uint64_t))dlsym(driver, "cuGetProcAddress");
    get("cuGetExportTable", &function, 12000, 0);
    use("linked", cuGetExportTable);
    use("dlsym", (table_fn *)dlsym(driver, "cuGetExportTable"));
    use("procaddr", (table_fn *)function);
    return 0;
}
