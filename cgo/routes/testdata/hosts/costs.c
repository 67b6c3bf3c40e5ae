// costs.c: what the library adds to lookups, in nanoseconds a call.
//
// Each lookup is made in turn through the library and by the function behind it, in batches; shown
// is the median of the differences between neighbouring batches.
#include "host.h"

#include <time.h>

enum { BATCHES = 400, CALLS = 200 };

typedef int get_fn(const char *, void **, int, uint64_t, int *);
typedef void *find_fn(void *, const char *);

// One way to look something up, and the place where results go lest they be optimised away.
struct lookup {
    get_fn *get;    // cuGetProcAddress_v2, or
    find_fn *find;  // dlsym
    void *handle;
    const char *name;
};
static void *volatile result;

static double batch_ns(const struct lookup *lookup) {
    struct timespec start, end;
    void *found = NULL;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < CALLS; i++) {
        if (lookup->get)
            lookup->get(lookup->name, &found, 12000, 0, &status);
        else
            found = lookup->find(lookup->handle, lookup->name);
        result = found;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) /
           CALLS;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(const char *title, const struct lookup *with, const struct lookup *behind) {
    static double added[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        double first = batch_ns(behind);
        added[i] = batch_ns(with) - first;
    }
    qsort(added, BATCHES, sizeof(*added), by_value);
    printf("%s %.1f\n", title, added[BATCHES / 2]);
}

static void compare_get(const char *title, get_fn *with, get_fn *behind, const char *name) {
    compare(title, &(struct lookup){.get = with, .name = name},
            &(struct lookup){.get = behind, .name = name});
}

static void compare_find(const char *title, find_fn *behind, void *handle, const char *name) {
    compare(title, &(struct lookup){.find = dlsym, .handle = handle, .name = name},
            &(struct lookup){.find = behind, .handle = handle, .name = name});
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *(*behind)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "cuTestBehind");
    if (!driver || !behind)
        return 1;
    get_fn *get = (get_fn *)dlsym(driver, "cuGetProcAddress_v2");
    get_fn *get_behind = (get_fn *)behind("cuGetProcAddress_v2");
    find_fn *find_behind = (find_fn *)behind("dlsym");
    if (get == get_behind || find_behind == dlsym)
        return 1;
    compare_get("procaddr_hooked", get, get_behind, "cuMemAlloc");
    compare_get("procaddr_other", get, get_behind, "cuEventRecord");
    compare_find("dlsym_hooked", find_behind, driver, "cuMemAlloc_v2");
    compare_find("dlsym_other", find_behind, driver, "cuEventRecord");
    compare_find("dlsym_unrelated", find_behind, RTLD_DEFAULT, "printf");
    compare_find("dlsym_default", find_behind, RTLD_DEFAULT, "cuMemAlloc_v2");
    return 0;
}
