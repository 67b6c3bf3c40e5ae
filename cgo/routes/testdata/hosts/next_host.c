// next_host.c: the program that next.c is preloaded into.
#include "host.h"

#include <fcntl.h>
#include <unistd.h>

int main(void) {
    int (*opened)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "next_opened");
    const void *(*next_open)(void) = (const void *(*)(void))dlsym(RTLD_DEFAULT, "next_open");
    const void *(*next_init)(void) = (const void *(*)(void))dlsym(RTLD_DEFAULT, "next_init");
    int fd = open("/dev/null", O_RDONLY);
    printf("open %s %d\n", fd >= 0 ? "works" : "fails", opened());
    close(fd);
    show("next_open", next_open());
    show("next_init", next_init());
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    show("next_init", next_init());
    init_fn *init = driver ? (init_fn *)dlsym(driver, "cuInit") : NULL;
    printf("code %d\n", init ? init(0) : -1);
    printf("calls %d\n", calls("cuInit"));
    return 0;
}
