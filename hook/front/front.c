// front.c: weir-runtime as container runtimes call it. It stands before the program in Go, whose
// start alone takes 2 ms: of a call that makes no container, which most are, it becomes runc at
// once.
//
// Invariants: it decides only what is plain. A call that may make a container, or settings that are
// more than a few simple lines, are for weir-runtime-create beside it, which knows all of it. It
// writes nothing but an error, and the process that the caller started is the one that becomes
// runc. It is linked without a libc and takes nothing from the environment but PATH and
// WEIR_RUNTIME_CONFIG.

#include "../../cgo/sys.h"

enum { PATH_BYTES = 4096, SETTINGS_BYTES = 4096 };

#define SETTINGS_FILE "/etc/weir/runtime.toml"

// A part of a text.
struct piece {
    const char *at;
    size_t length;
};

static size_t length_of(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static struct piece whole(const char *text) {
    return (struct piece){text, length_of(text)};
}

static int begins(struct piece p, const char *with) {
    size_t length = length_of(with);
    if (p.length < length)
        return 0;
    for (size_t i = 0; i < length; i++)
        if (p.at[i] != with[i])
            return 0;
    return 1;
}

static int is(struct piece p, const char *text) {
    return p.length == length_of(text) && begins(p, text);
}

// Takes what is before the first `mark`, or all, off a text.
static struct piece cut(struct piece *rest, char mark) {
    struct piece head = {rest->at, 0};
    while (head.length < rest->length && head.at[head.length] != mark)
        head.length++;
    size_t taken = head.length < rest->length ? head.length + 1 : head.length;
    rest->at += taken;
    rest->length -= taken;
    return head;
}

static struct piece trim(struct piece p) {
    while (p.length && (p.at[0] == ' ' || p.at[0] == '\t'))
        p.at++, p.length--;
    while (p.length && (p.at[p.length - 1] == ' ' || p.at[p.length - 1] == '\t'))
        p.length--;
    return p;
}

// `directory`/`name` as a path; 0 if it is too long.
static int join(char path[PATH_BYTES], struct piece directory, struct piece name) {
    if (directory.length + name.length + 2 > PATH_BYTES)
        return 0;
    size_t at = 0;
    for (size_t i = 0; i < directory.length; i++)
        path[at++] = directory.at[i];
    path[at++] = '/';
    for (size_t i = 0; i < name.length; i++)
        path[at++] = name.at[i];
    path[at] = 0;
    return 1;
}

static const char *variable(char **environment, const char *name) {
    for (; *environment; environment++) {
        struct piece rest = whole(*environment);
        if (is(cut(&rest, '='), name) && rest.at[-1] == '=')
            return rest.at;
    }
    return 0;
}

// Reads the settings: 1 with the runtime that they name, 0 where they are not plain.
static int read_settings(const char *path, char text[SETTINGS_BYTES], struct piece *runtime) {
    *runtime = whole("runc");
    int fd = weir_sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return fd == -ENOENT;
    long bytes = weir_sys_read(fd, text, SETTINGS_BYTES);
    weir_sys_close(fd);
    if (bytes < 0 || bytes == SETTINGS_BYTES)
        return 0;
    struct piece rest = {text, (size_t)bytes};
    while (rest.length) {
        struct piece value = trim(cut(&rest, '\n'));
        if (!value.length || value.at[0] == '#')
            continue;
        struct piece key = trim(cut(&value, '='));
        value = trim(value);
        if (value.length < 2 || value.at[0] != '"' || value.at[value.length - 1] != '"')
            return 0;
        value = (struct piece){value.at + 1, value.length - 2};
        for (size_t i = 0; i < value.length; i++)
            if (value.at[i] == '"' || value.at[i] == '\\' || (unsigned char)value.at[i] < ' ')
                return 0;
        if (is(key, "runtime"))
            *runtime = value;
        else if (!is(key, "control_socket"))
            return 0;
    }
    return 1;
}

static int status_of(const char *path, struct stat *status) {
    return (int)weir_syscall(SYS_newfstatat, AT_FDCWD, (long)path, (long)status, 0, 0, 0);
}

// Becomes the program at `path`, unless that is this one. It returns where that cannot be.
static void become(char *path, char **arguments, char **environment) {
    struct stat self, other;
    if (status_of("/proc/self/exe", &self) || status_of(path, &other) ||
        (self.st_dev == other.st_dev && self.st_ino == other.st_ino))
        return;
    char *called = arguments[0];
    arguments[0] = path;
    weir_syscall(SYS_execve, (long)path, (long)arguments, (long)environment, 0, 0, 0);
    arguments[0] = called;
}

// Becomes the runtime below, where it is plain which that is.
static void pass_on(char **arguments, char **environment) {
    static char text[SETTINGS_BYTES], path[PATH_BYTES];
    struct piece runtime;
    const char *settings = variable(environment, "WEIR_RUNTIME_CONFIG");
    if (!read_settings(settings && *settings ? settings : SETTINGS_FILE, text, &runtime))
        return;
    struct piece name = runtime;
    if (begins(runtime, "/")) {
        cut(&name, '/');
        if (join(path, (struct piece){"", 0}, name))
            become(path, arguments, environment);
        return;
    }
    cut(&name, '/');
    const char *places = variable(environment, "PATH");
    if (name.length || !runtime.length || !places)
        return;
    struct piece rest = whole(places);
    while (rest.length) {
        struct piece place = cut(&rest, ':');
        if (begins(place, "/") && join(path, place, runtime))
            become(path, arguments, environment);
    }
}

static _Noreturn void leave(void) {
    for (;;)
        weir_syscall(SYS_exit_group, 1, 0, 0, 0, 0, 0);
}

static void write_all(int fd, const char *const *texts) {
    for (; *texts; texts++)
        weir_sys_write(fd, *texts, length_of(*texts));
}

// Whether a call may make a container: then one of its arguments is so called.
static int starts(struct piece argument) {
    return is(argument, "create") || is(argument, "run") || is(argument, "restore");
}

static int may_start(char **arguments) {
    for (; *arguments; arguments++)
        if (starts(whole(*arguments)))
            return 1;
    return 0;
}

// Where the caller looks for the error of a failed call: what it gave with --log, and whether that
// is to be JSON.
struct log {
    const char *path;
    int json;
};

// Reads the flags before the command. It knows no others: their values are passed over where they
// do not begin with a dash.
static struct log find_log(char **arguments) {
    struct log log = {0, 0};
    for (; *arguments && !starts(whole(*arguments)); arguments++) {
        struct piece value = whole(*arguments);
        if (!begins(value, "-"))
            continue;
        cut(&value, '-');
        if (begins(value, "-"))
            cut(&value, '-');
        struct piece name = cut(&value, '=');
        int path = is(name, "log");
        if (!path && !is(name, "log-format"))
            continue;
        if (value.at[-1] != '=' && arguments[1])
            value = whole(*++arguments);
        if (path)
            log.path = value.at;
        else
            log.json = is(value, "json");
    }
    return log;
}

// Fails for a reason, a text that stands in JSON as it is. runc's own lines have the time, too;
// their readers do without.
static _Noreturn void fail(struct log log, const char *reason) {
    write_all(2, (const char *const[]){reason, "\n", 0});
    if (log.path && *log.path) {
        int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
        int fd = weir_sys_open(log.path, flags, 0644);
        if (fd >= 0 && log.json)
            write_all(fd,
                      (const char *const[]){"{\"level\":\"error\",\"msg\":\"", reason, "\"}\n", 0});
        else if (fd >= 0)
            write_all(fd, (const char *const[]){"level=error msg=\"", reason, "\"\n", 0});
    }
    leave();
}

#define PROGRAM                                                                                    \
    "weir: weir-runtime-create, which has to lie beside weir-runtime, cannot be started: "
#define WAY_OUT "install all of weir's programs in one directory"

// Becomes weir-runtime-create, which lies beside this program and is told its path.
static _Noreturn void hand_over(char **arguments, char **environment) {
    static char self[PATH_BYTES], path[PATH_BYTES];
    struct log log = find_log(arguments + 1);
    long length = weir_sys_readlink("/proc/self/exe", self, sizeof self - 1);
    while (length > 0 && self[length - 1] != '/')
        length--;
    if (length > 0 &&
        join(path, (struct piece){self, (size_t)length - 1}, whole("weir-runtime-create"))) {
        arguments[0] = self;
        weir_syscall(SYS_execve, (long)path, (long)arguments, (long)environment, 0, 0, 0);
    }
    if (weir_sys_exists(path))
        fail(log, PROGRAM "it is not there; " WAY_OUT);
    fail(log, PROGRAM "see what it is; " WAY_OUT);
}

// The program, called with its first stack, which the kernel has filled.
__attribute__((used)) _Noreturn void weir_front(long *stack) {
    char **arguments = (char **)(stack + 1);
    char **environment = arguments + stack[0] + 1;
    if (stack[0] < 1)
        fail((struct log){0, 0}, "weir: weir-runtime was called without a name");
    if (!may_start(arguments + 1))
        pass_on(arguments, environment);
    hand_over(arguments, environment);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call weir_front\n");
#else
__asm__(".globl _start\n_start:\n mov x0, sp\n bl weir_front\n");
#endif
