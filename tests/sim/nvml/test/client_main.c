// client GPU BYTES: holds BYTES on a GPU of the simulated machine until its input ends. Prints its
// pid when it does, so that a test in another language can wait for it.
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: client GPU BYTES\n");
        return 2;
    }
    int code = client_join((unsigned)atoi(argv[1]), strtoull(argv[2], NULL, 10), 0);
    if (code != 0) {
        errno = code;
        perror("client");
        return 1;
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
