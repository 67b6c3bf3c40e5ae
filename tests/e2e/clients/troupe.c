// troupe.c: several processes of one program in one container, each with a Unix socket of its own
// as standard input and output.
//
// troupe DIRECTORY COUNT PROGRAM makes the sockets DIRECTORY/0 … and says "ready". It ends when its
// own input ends, and all of its children with it.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_at(const char *directory, int number) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d", directory, number);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1))
        return -1;
    return fd;
}

static void play(int listener, char *program) {
    char *arguments[] = {program, NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
        _exit(1);
    close(fd);
    execv(program, arguments);
    _exit(1);
}

int main(int count, char **arguments) {
    char byte;
    if (count != 4)
        return 2;
    for (int i = 0; i < atoi(arguments[2]); i++) {
        int listener = listen_at(arguments[1], i);
        if (listener < 0)
            return 1;
        if (fork() == 0)
            play(listener, arguments[3]);
        close(listener);
    }
    // The dead are not waited for: whoever sees one as a zombie knows that its pid is still its
    // own.
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        return 1;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
