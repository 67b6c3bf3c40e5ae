// client GPU BYTES [BUSY_NS]: holds BYTES on a GPU of the simulated machine until its input ends,
// and has it work for so long from the beginning. Prints its pid when it does, so that a test in
// another language can wait for it.
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: client GPU BYTES [BUSY_NS]\n");
        return 2;
    }
    uint64_t busy_ns = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    int code = client_join((unsigned)atoi(argv[1]), strtoull(argv[2], NULL, 10), busy_ns);
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
