// idle.c: a program that never uses CUDA; prints what it has: threads, descriptors, mapped objects,
// memory names, errno across a lookup.
#include "host.h"

#include <dirent.h>
#include <errno.h>

static void count(const char *name, const char *path) {
    DIR *directory = opendir(path);
    int entries = 0;
    while (directory && readdir(directory))
        entries++;
    printf("%s %d\n", name, entries);
    closedir(directory);
}

int main(void) {
    errno = 77;
    show("nothing", dlsym(RTLD_DEFAULT, "weir_no_such_name"));
    show("own", dlsym(RTLD_DEFAULT, "cuInit"));
    printf("errno %d\n", errno);
    count("threads", "/proc/self/task");
    count("descriptors", "/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int drivers = 0, memfds = 0;
    while (maps && fgets(line, sizeof(line), maps)) {
        drivers += strstr(line, "libcuda") != NULL;
        memfds += strstr(line, "memfd") != NULL;
    }
    printf("drivers %d\nmemfds %d\n", drivers, memfds);
    return 0;
}
