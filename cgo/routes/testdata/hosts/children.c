// children.c: uses the driver, then from children: forked, vforked and executed, which reach it by
// the same route. argv[1] "child": the executed one.
#include "host.h"

#include <sys/wait.h>
#include <unistd.h>

static int use(const char *who) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    init_fn *init = driver ? (init_fn *)dlsym(driver, "cuInit") : NULL;
    int code = init ? init(0) : -1;
    printf("%s %s %d %d\n", who, owner((void *)init), code, calls("cuInit"));
    fflush(stdout);
    return code;
}

static void reap(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("ended %d\n", status);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return use(argv[1]);
    use("parent");
    pid_t child = fork();
    if (child == 0)
        _exit(use("forked"));
    reap(child);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "executed", NULL);
        _exit(1);
    }
    reap(child);
    use("parent");
    return 0;
}
