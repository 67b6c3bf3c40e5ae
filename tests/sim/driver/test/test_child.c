// test_child.c: see test_child.h.
#define _GNU_SOURCE
#include "test_child.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int tell_fd, hear_fd;

struct child spawn(void (*run)(uint64_t), uint64_t argument) {
    int up[2], down[2];
    CHECK(!pipe2(up, O_CLOEXEC) && !pipe2(down, O_CLOEXEC));
    struct child child = {.pid = fork(), .from = up[0], .to = down[1]};
    CHECK(child.pid >= 0);
    if (!child.pid) {
        tell_fd = up[1];
        hear_fd = down[0];
        for (int fd = 3; fd < 200; fd++)  // the other children's ends are not ours to hold
            if (fd != tell_fd && fd != hear_fd)
                close(fd);
        run(argument);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    return child;
}

uint64_t hear(struct child child) {
    uint64_t word = 0;
    CHECK_EQ(read(child.from, &word, sizeof word), sizeof word);
    return word;
}

void say(struct child child, uint64_t word) {
    CHECK_EQ(write(child.to, &word, sizeof word), sizeof word);
}

void finish(struct child child) {
    int status;
    close(child.to);
    CHECK_EQ(waitpid(child.pid, &status, 0), child.pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    close(child.from);
}

void kill_now(struct child child) {
    int status;
    CHECK(child.pid > 0);
    kill(child.pid, SIGKILL);
    CHECK_EQ(waitpid(child.pid, &status, 0), child.pid);
    CHECK(WIFSIGNALED(status));
    close(child.from);
}

void stop_now(struct child child) {
    int status;
    CHECK(child.pid > 0);
    kill(child.pid, SIGSTOP);
    CHECK_EQ(waitpid(child.pid, &status, WUNTRACED), child.pid);
    CHECK(WIFSTOPPED(status));
}

void sleep_us(unsigned us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

void tell(uint64_t word) {
    CHECK_EQ(write(tell_fd, &word, sizeof word), sizeof word);
}

uint64_t listen_word(void) {
    uint64_t word;
    if (read(hear_fd, &word, sizeof word) != sizeof word)
        _exit(0);
    return word;
}

void wait_for_end(void) {
    char byte;
    while (read(hear_fd, &byte, 1) < 0 && errno == EINTR)
        ;
}

bool end_wanted(void) {
    char byte;
    return read(hear_fd, &byte, 1) == 0;
}
