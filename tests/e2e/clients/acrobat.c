// acrobat.c: processes that use every kind of device memory as a test tells them, for tests of
// random sequences. One program is one container's stage.
//
// acrobat SOCKET listens there and says "ready". Every connection gets a process of its own, forked
// and not executed anew, which reads one command a line and answers each with one line. A first
// word
// "@N" is the device that the command is for; without it, 0 or what was current. The stage itself
// never uses CUDA; it ends with its own input, and all its processes with it.
#define _GNU_SOURCE
#include "acrobat.h"

#include "cuda.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SLOTS_MAX = 1024, WORDS_MAX = 8, LINE_BYTES = 1024 };

int gpu_now;

static int connection = -1;
static int lifeline;  // ends with the stage

void answer(const char *format, ...) {
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    // Whoever told us to may have gone.
    if (send(connection, line, (size_t)length, MSG_NOSIGNAL) != length)
        _exit(1);
}

void answer_code(int code) {
    if (code)
        answer("error %d", code);
    else
        answer("ok");
}

uint64_t number_of(const char *word) {
    return word ? strtoull(word, NULL, 0) : 0;
}

void answer_bytes(int code, const void *from, size_t bytes) {
    char text[LINE_BYTES / 2];
    for (size_t i = 0; i < bytes && 2 * i + 2 < sizeof(text); i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)from)[i]);
    if (code)
        answer_code(code);
    else
        answer("ok %s", text);
}

void bytes_of(void *to, size_t bytes, const char *text) {
    for (size_t i = 0; i < bytes && text[2 * i] && text[2 * i + 1]; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        ((unsigned char *)to)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
}

// ---- Slots ----

static struct {
    give_back_fn *give_back;  // NULL: free
    uint64_t handle, bytes;
    int gpu;
} slots[SLOTS_MAX];

void answer_slot(int code, give_back_fn *give_back, uint64_t handle, uint64_t bytes) {
    int slot = 0;
    while (slot < SLOTS_MAX && slots[slot].give_back)
        slot++;
    if (code || slot == SLOTS_MAX) {
        answer_code(code ? code : -1);
        return;
    }
    slots[slot].give_back = give_back;
    slots[slot].handle = handle;
    slots[slot].bytes = bytes;
    slots[slot].gpu = gpu_now;
    answer("ok %d", slot);
}

uint64_t handle_in(const char *slot) {
    return slots[number_of(slot) % SLOTS_MAX].handle;
}

uint64_t bytes_in(const char *slot) {
    return slots[number_of(slot) % SLOTS_MAX].bytes;
}

void forget_all(void) {
    for (int slot = 0; slot < SLOTS_MAX; slot++)
        if (slots[slot].gpu == gpu_now)
            slots[slot].give_back = NULL;
}

// "free SLOT"
static void do_free(char **words) {
    uint64_t slot = number_of(words[1]) % SLOTS_MAX;
    give_back_fn *give_back = slots[slot].give_back;
    int code = give_back ? give_back(slots[slot].handle, slots[slot].bytes) : -1;
    if (!code)
        slots[slot].give_back = NULL;
    answer_code(code);
}

// ---- Processes ----

static void do_pid(char **words) {
    (void)words;
    answer("ok %d", (int)getpid());
}

// "hold": a child that only keeps the descriptors that it inherited, as long as the stage is there;
// its pid.
static void do_hold(char **words) {
    (void)words;
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(connection);
        while (read(lifeline, &byte, 1) < 0 && errno == EINTR)
            ;
        _exit(0);
    }
    if (pid < 0)
        answer("wrong fork %d", errno);
    else
        answer("ok %d", (int)pid);
}

// "child BYTES": a child that uses CUDA from the beginning, and the code that it got; it is dead
// then.
static void do_child(char **words) {
    int ends[2], code = -1;
    if (pipe(ends)) {
        answer("wrong pipe %d", errno);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t address;
        code = use_gpu(gpu_now);
        if (!code)
            code = cuMemAlloc_v2(&address, number_of(words[1]));
        _exit(write(ends[1], &code, sizeof(code)) != sizeof(code));
    }
    close(ends[1]);
    if (read(ends[0], &code, sizeof(code)) != sizeof(code))
        code = -1;
    close(ends[0]);
    answer_code(code);
}

static void do_quit(char **words) {
    (void)words;
    _exit(0);
}

static const struct act process_acts[] = {
    {"free", do_free},   {"pid", do_pid},   {"hold", do_hold},
    {"child", do_child}, {"quit", do_quit}, {NULL, NULL},
};

// ---- The stage ----

static bool run_one_of(const struct act *acts, char **words) {
    for (; acts->name; acts++) {
        if (!strcmp(words[0], acts->name)) {
            acts->run(words);
            return true;
        }
    }
    return false;
}

static void run_line(char *line) {
    char *all[WORDS_MAX + 1] = {NULL}, **words = all, *rest = line;
    for (int count = 0; count < WORDS_MAX; count++) {
        words[count] = strsep(&rest, " ");
        if (!words[count])
            break;
    }
    if (words[0][0] == '@' && words[1]) {
        use_device((int)number_of(words[0] + 1));
        words++;
    }
    if (!run_one_of(process_acts, words) && !run_one_of(memory_acts, words) &&
        !run_one_of(pool_acts, words) && !run_one_of(context_acts, words) &&
        !run_one_of(export_acts, words))
        answer("wrong command %s", words[0]);
}

static void perform(void) {
    char line[LINE_BYTES];
    size_t length = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (length < sizeof(line) && read(connection, line + length, 1) == 1) {
        if (line[length++] != '\n')
            continue;
        line[length - 1] = 0;
        run_line(line);
        length = 0;
    }
    _exit(0);
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 64))
        return -1;
    return fd;
}

int main(int count, char **arguments) {
    int listener = count == 2 ? listen_at(arguments[1]) : -1, ends[2];
    if (listener < 0 || pipe(ends))
        return 1;
    lifeline = ends[0];
    signal(SIGCHLD, SIG_IGN);
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        return 1;
    struct pollfd waits[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = listener, .events = POLLIN}};
    for (;;) {
        if (poll(waits, 2, -1) < 0 && errno != EINTR)
            return 1;
        if (waits[0].revents)
            return 0;
        if (!(waits[1].revents & POLLIN) || (connection = accept(listener, NULL, NULL)) < 0)
            continue;
        if (fork() == 0) {
            close(listener);
            close(ends[1]);
            perform();
        }
        close(connection);
    }
}
