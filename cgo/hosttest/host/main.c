// main.c: a program with the library linked in, over a driver of its own (driver.c). It reads lines
// of commands (separated by semicolons) from its standard input and answers each command with one
// line, so that a test can lead it through any order of events.
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../hooks.h"
#include "../../state.h"
#include "driver.h"
#include "host.h"

#define WORDS_MAX 8
#define LINE_MAX_BYTES 512
#define DESCRIPTORS 1024

// Calls the library and notes where it has changed errno, which is the program's.
#define CALL(call)                                                                                 \
    ({                                                                                             \
        errno = ERRNO_MARK;                                                                        \
        CUresult call_result = (call);                                                             \
        errno_lost += errno != ERRNO_MARK;                                                         \
        call_result;                                                                               \
    })
#define ERRNO_MARK 4242

static uint64_t errno_lost;

static void run_line(char *line);

static void do_alloc(char **words) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    CUresult result;
    if (!strcmp(words[0], "pitch"))
        result =
            CALL(weir_cuMemAllocPitch_v2(&pointer, &pitch, number(words[1]), number(words[2]), 4));
    else if (!strcmp(words[0], "managed"))
        result = CALL(weir_cuMemAllocManaged(&pointer, number(words[1]), 1));
    else if (!strcmp(words[0], "nowhere"))
        result = CALL(weir_cuMemAlloc_v2(NULL, number(words[1])));
    else
        result = CALL(weir_cuMemAlloc_v2(&pointer, number(words[1])));
    say(result, pointer);
}

static void do_free(char **words) {
    if (!strcmp(words[0], "free"))
        say(CALL(weir_cuMemFree_v2(number(words[1]))), 0);
    else
        say(CALL(weir_cuMemFreeAsync(number(words[1]), NULL)), 0);
}

static void do_info(char **words) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!strcmp(words[0], "total")) {
        CUresult result = CALL(weir_cuDeviceTotalMem_v2(&total_bytes, (int)number(words[1])));
        say(result, total_bytes);
        return;
    }
    CUresult result = CALL(weir_cuMemGetInfo_v2(&free_bytes, &total_bytes));
    if (result == CUDA_SUCCESS)
        printf("ok %zu %zu\n", free_bytes, total_bytes);
    else
        say(result, 0);
}

static void do_context(char **words) {
    CUcontext context = (CUcontext)(uintptr_t)number(words[1]);
    int device = (int)number(words[1]);
    if (!strcmp(words[0], "use")) {
        test_driver_use_context(number(words[1]));
        say(0, 0);
    } else if (!strcmp(words[0], "context")) {
        say(0, test_driver_new_context(device));
    } else if (!strcmp(words[0], "destroy")) {
        say(weir_cuCtxDestroy_v2(context), 0);
    } else if (!strcmp(words[0], "attach")) {
        CUresult result = weir_cuCtxAttach(&context, 0);
        say(result, (uint64_t)(uintptr_t)context);
    } else if (!strcmp(words[0], "detach")) {
        say(weir_cuCtxDetach(context), 0);
    } else if (!strcmp(words[0], "retain")) {
        CUresult result = weir_cuDevicePrimaryCtxRetain(&context, device);
        say(result, (uint64_t)(uintptr_t)context);
    } else if (!strcmp(words[0], "release")) {
        say(weir_cuDevicePrimaryCtxRelease_v2(device), 0);
    } else {
        say(weir_cuDevicePrimaryCtxReset_v2(device), 0);
    }
}

// What the library believes about a GPU: owned and pending bytes, entries in the table.
static void do_books(char **words) {
    struct weir_state *state = weir_state_page;
    if (!state) {
        printf("ok none\n");
        return;
    }
    const struct weir_gpu *gpu = &state->gpus[number(words[1]) % WEIR_ORDINALS_MAX];
    weir_lock(&state->lock);
    printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " mode %u up %u\n", gpu->owned_bytes,
           gpu->pending_bytes, state->table.entries, state->mode, state->link_up);
    weir_unlock(&state->lock);
}

static void do_driver(char **words) {
    if (!strcmp(words[0], "fail"))
        test_driver.fail_code = (int)number(words[1]);
    else if (!strcmp(words[0], "dawdle"))
        test_driver.dawdle_us = (unsigned)number(words[1]);
    else if (!strcmp(words[0], "rows"))
        test_driver.pitch_bytes = (unsigned)number(words[1]);
    else if (!strcmp(words[0], "limit"))
        test_driver.limit_bytes[number(words[1]) % TEST_GPUS] = number(words[2]);
    printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", test_driver.used_bytes[0],
           test_driver.used_bytes[1], test_driver.violations, test_driver.calls);
}

static int count_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        count += weir_sys_fcntl(fd, F_GETFD, 0) >= 0;
    return count;
}

// Runs the rest of the line in a forked child; the child's answer is the answer.
static void do_fork(char *rest) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run_line(rest);
        fflush(stdout);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status))
        printf("err died %d\n", WTERMSIG(status));
}

// A child that shares this process's memory does what a host's might before exec.
static void do_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        for (int fd = 3; fd < DESCRIPTORS; fd++)
            weir_sys_close(fd);
        _exit(0);
    }
    int status;
    say(waitpid(child, &status, 0) == child && status == 0 ? 0 : 1, 0);
}

// Makes a system call fail from now on; if `third` is not 0, only with that third argument.
static void forbid(uint32_t number_of_call, uint32_t third, uint32_t error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_of_call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, third ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say(rc ? rc : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// Closes all descriptors, as daemons do, and puts others in their place: files (1), or connected
// sockets with a message in each (2). Answers how many this program then has; what the helper opens
// meanwhile does not count.
static void do_closefrom(int reuse) {
    int pair[2] = {0, 0};
    int count = 0;
    for (int fd = 0; fd < 3; fd++)
        count += weir_sys_fcntl(fd, F_GETFD, 0) >= 0;
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        weir_sys_close(fd);
    for (int i = 0; i < 1000 && reuse == 1; i++, count++)
        if (weir_sys_open("/dev/null", O_RDWR, 0) < 0)
            break;
    while (reuse == 2 && pair[1] < 1000 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0) {
        count += 2;
        if (write(pair[0], "x", 1) != 1 || write(pair[1], "x", 1) != 1)
            break;
    }
    printf("ok %d\n", count);
}

// In how many of those sockets there is not just that one message.
static void do_touched(void) {
    uint64_t touched = 0;
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        char byte[8];
        if (weir_sys_fcntl(fd, F_GETFD, 0) < 0 || fd == weir_state_page->fd ||
            fd == weir_state_page->usage_fd)
            continue;
        touched += recv(fd, byte, sizeof(byte), MSG_DONTWAIT) != 1 ||
                   recv(fd, byte, sizeof(byte), MSG_DONTWAIT) >= 0;
    }
    say(0, touched);
}

// How many memory files this process has mapped.
static void do_mapped(void) {
    char line[LINE_MAX_BYTES];
    uint64_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:") != NULL;
    if (maps)
        fclose(maps);
    say(0, count);
}

// What daemons do before they use CUDA: give up rights, keep no environment.
static void do_daemon(const char *what) {
    int rc = 0;
    if (!strcmp(what, "group"))
        rc = setegid(getegid() + 1);
    else if (!strcmp(what, "clear"))
        rc = clearenv();
    else
        rc = unsetenv("WEIR_SOCKET");
    say(rc ? errno : 0, 0);
}

static void do_locked(void) {
    CUdeviceptr pointer;
    size_t free_bytes, total_bytes;
    struct weir_state *state = weir_state_page;
    weir_lock(&state->lock);
    CUresult allocated = weir_cuMemAlloc_v2(&pointer, 512), freed = weir_cuMemFree_v2(65536);
    CUresult told = weir_cuMemGetInfo_v2(&free_bytes, &total_bytes);
    weir_unlock(&state->lock);
    printf("ok %d %d %d\n", allocated, freed, told);
}

static int run_test(char **words) {
    if (!strcmp(words[0], "stress"))
        return test_stress((int)number(words[1]), (int)number(words[2]), number(words[3]),
                           (int)number(words[4]));
    if (!strcmp(words[0], "mix"))
        return test_mix((int)number(words[1]), (int)number(words[2]), (int)number(words[3]),
                        number(words[4]));
    if (!strcmp(words[0], "leave"))
        return test_leave((int)number(words[1]));
    if (!strcmp(words[0], "signals"))
        return test_signals((int)number(words[1]));
    if (!strcmp(words[0], "table"))
        return test_table(number(words[1]));
    if (!strcmp(words[0], "crowd"))
        return test_crowd((int)number(words[1]));
    if (!strcmp(words[0], "lock"))
        return test_lock();
    if (!strcmp(words[0], "messages"))
        return test_messages_at_random(number(words[1]), (int)number(words[2]));
    if (!strcmp(words[0], "bench"))
        return test_bench();
    return -1;
}

struct command {
    const char *name;
    void (*run)(char **words);
};

static const struct command commands[] = {
    {"alloc", do_alloc},     {"nowhere", do_alloc},   {"pitch", do_alloc},
    {"managed", do_alloc},   {"free", do_free},       {"freeasync", do_free},
    {"info", do_info},       {"total", do_info},      {"use", do_context},
    {"context", do_context}, {"destroy", do_context}, {"attach", do_context},
    {"detach", do_context},  {"retain", do_context},  {"release", do_context},
    {"reset", do_context},   {"books", do_books},     {"driver", do_driver},
    {"fail", do_driver},     {"dawdle", do_driver},   {"rows", do_driver},
    {"limit", do_driver},
};

static void run_words(char **words) {
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(words[0], commands[i].name)) {
            commands[i].run(words);
            return;
        }
    if (test_kinds(words, &errno_lost))
        return;
    if (test_sharing(words))
        return;
    if (test_contexts_command(words))
        return;
    if (test_work(words))
        return;
    if (test_managed(words) || test_graphuse(words))
        return;
    if (!strcmp(words[0], "init"))
        say(CALL(weir_cuInit((unsigned)number(words[1]))), 0);
    else if (!strcmp(words[0], "vfork"))
        do_vfork();
    else if (!strcmp(words[0], "nowipe"))
        forbid(SYS_madvise, WEIR_MADV_WIPEONFORK, EINVAL);  // a kernel before 4.14
    else if (!strcmp(words[0], "nothreads"))
        forbid(SYS_clone3, 0, EAGAIN);
    else if (!strcmp(words[0], "closefrom"))
        do_closefrom((int)number(words[1]));
    else if (!strcmp(words[0], "touched"))
        do_touched();
    else if (!strcmp(words[0], "mapped"))
        do_mapped();
    else if (!strcmp(words[0], "descriptors"))
        say(0, (uint64_t)count_descriptors());
    else if (!strcmp(words[0], "errno"))
        say(0, errno_lost);
    else if (!strcmp(words[0], "daemon"))
        do_daemon(words[1] ? words[1] : "");
    else if (!strcmp(words[0], "locked"))
        do_locked();
    else
        say(run_test(words), 0);
}

static void run_line(char *line) {
    if (!strncmp(line, "fork ", 5)) {
        do_fork(line + 5);
        return;
    }
    char *after = strchr(line, ';');
    if (after)
        *after++ = 0;
    char *words[WORDS_MAX] = {0}, *next = NULL;
    char *word = strtok_r(line, " \n", &next);
    for (int i = 0; word && i < WORDS_MAX; i++, word = strtok_r(NULL, " \n", &next))
        words[i] = word;
    if (words[0])
        run_words(words);
    if (after)
        run_line(after);
}

int main(void) {
    char line[LINE_MAX_BYTES];
    test_driver_install();
    test_driver_use_context(1);
    while (fgets(line, sizeof(line), stdin)) {
        run_line(line);
        fflush(stdout);
    }
    return 0;
}
