// threads.c: many threads that find the driver at once. Linked
// with the library's finding part, for the thread sanitizer.
#include <pthread.h>

#include "host.h"

void *weir_driver_swap(void *function, const char *asked);
void *weir_wrapper(int fn);
void *weir_real_find(int fn);
int weir_fn_named(const char *name);

enum { THREADS = 8, ROUNDS = 200 };

static pthread_barrier_t start;
static void *driver;

static void *work(void *unused) {
    (void)unused;
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuMemFree", "cuMemGetInfo_v2"};
    size_t wrong = 0;
    pthread_barrier_wait(&start);
    for (int i = 0; i < ROUNDS; i++) {
        const char *name = names[i % 4];
        int fn = weir_fn_named(name);
        void *real = weir_real_find(fn);
        wrong += real != dlsym(driver, name);
        wrong += weir_driver_swap(real, NULL) != weir_wrapper(fn);
        wrong += weir_driver_swap(dlsym(driver, "cuEventRecord"), NULL) !=
                 dlsym(driver, "cuEventRecord");
    }
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[THREADS];
    size_t wrong = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (size_t)result;
    }
    printf("wrong %zu\n", wrong);
    return wrong != 0;
}
