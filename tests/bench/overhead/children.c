// children.c: starting, reading and ending child programs; see children.h.
#define _GNU_SOURCE
#include "children.h"

#include "driver_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 256 };

extern char **environ;

static int is(const char *entry, const char *name) {
    size_t length = strlen(name);
    return !strncmp(entry, name, length) && entry[length] == '=';
}

// The environment of a child.
struct environment {
    char *entries[ENVIRONMENT_MAX];
    char preload[4096], driver[4096], delay[64];
};

static void build_environment(struct environment *env, const struct setting *setting) {
    size_t count = 0;
    for (char **entry = environ; *entry && count < ENVIRONMENT_MAX - 4; entry++) {
        if (is(*entry, "LD_PRELOAD") || is(*entry, "LD_LIBRARY_PATH") ||
            is(*entry, "WEIR_NULL_CONTEXT_MS") ||
            (is(*entry, "WEIR_SOCKET") && !setting->keep_socket))
            continue;
        env->entries[count++] = *entry;
    }
    if (setting->preload) {
        snprintf(env->preload, sizeof(env->preload), "LD_PRELOAD=%s", setting->preload);
        env->entries[count++] = env->preload;
    }
    if (setting->driver_dir) {
        snprintf(env->driver, sizeof(env->driver), "LD_LIBRARY_PATH=%s", setting->driver_dir);
        env->entries[count++] = env->driver;
    }
    if (setting->context_ms) {
        snprintf(env->delay, sizeof(env->delay), "WEIR_NULL_CONTEXT_MS=%d", setting->context_ms);
        env->entries[count++] = env->delay;
    }
    env->entries[count] = NULL;
}

pid_t start_child(const char *path, const struct setting *setting, int in, int out) {
    struct environment env;
    build_environment(&env, setting);
    char *arguments[] = {(char *)path, (char *)setting->argument, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int error = posix_spawn(&pid, path, &actions, NULL, arguments, env.entries);
    posix_spawn_file_actions_destroy(&actions);
    return error ? -1 : pid;
}

static int ms_until(uint64_t deadline_ns) {
    uint64_t now = now_ns();
    return now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000) + 1;
}

size_t read_lines(int fd, char *text, size_t bytes, int lines, uint64_t deadline_ns, int *late) {
    size_t length = 0;
    *late = 0;
    while (length < bytes - 1 && lines > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, ms_until(deadline_ns)) <= 0) {
            *late = 1;
            break;
        }
        ssize_t got = read(fd, text + length, bytes - 1 - length);
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            lines -= text[length + (size_t)i] == '\n';
        length += (size_t)got;
    }
    text[length] = 0;
    return length;
}

int end_child(pid_t pid, uint64_t deadline_ns) {
    if (pid < 0)
        return -1;
    int status, pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int in_time = poll(&ended, 1, ms_until(deadline_ns)) > 0;
    if (!in_time)
        kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(pidfd);
    return in_time ? status : -1;
}

int describe_failure(int status, char *text, size_t bytes) {
    if (status == 0)
        return 0;
    if (status == -1)
        snprintf(text, bytes, "hung or not started");
    else if (WIFSIGNALED(status))
        snprintf(text, bytes, "signal %d", WTERMSIG(status));
    else
        snprintf(text, bytes, "exit %d", WEXITSTATUS(status));
    return 1;
}

void read_steal(uint64_t *steal, uint64_t *all) {
    unsigned long long field[8] = {0};
    FILE *stat = fopen("/proc/stat", "re");
    *steal = *all = 0;
    if (!stat)
        return;
    if (fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1], &field[2],
               &field[3], &field[4], &field[5], &field[6], &field[7]) == 8) {
        *steal = field[7];
        for (int i = 0; i < 8; i++)
            *all += field[i];
    }
    fclose(stat);
}
