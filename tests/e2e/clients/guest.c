// guest.c: a program with habits of its own, which takes one piece of memory of each kind.
//
// Usage: guest ROUTE PLACE. ROUTE is how it finds the driver's functions: dlsym, dlvsym, deepbind
// or procaddress. PLACE is where it uses them: here, or in a child after fork, clone (the bare
// system call) or vfork (with exec of this program), or after exec; or under handlers, with
// handlers of its own and a timer that interrupts it a thousand times a second. It prints "holds
// BYTES" and waits for a line, frees everything, prints "left" and waits for the next one.
//
// It fails with a line that says what, if the driver does, or if what is the program's own has
// changed meanwhile: errno, umask, signal handlers and mask, locale, and what descriptors 0 to 2
// are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PLAIN_BYTES = 1 << 20,
    ASYNC_BYTES = 4096,
    SIDE = 256,  // of the array, in texels of one byte
    ERRNO = 1234,
    POOL_RESERVED = 5,
    TICK_US = 1000,
};

typedef struct {
    int type, id;
} location;

typedef struct {
    int type, handle_types;
    location location;
    void *security;
    char flags[8];
} physical_properties;

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} array_description;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stdout, format, arguments);
    va_end(arguments);
    puts("");
    fflush(stdout);
    _exit(1);
}

// ---- The ways to the driver ----

static const char *route;
static void *driver;

static void *by_version(const char *name) {
    static int (*lookup)(const char *, void **, int, uint64_t, int *);
    void *found = NULL;
    char base[64];
    if (!lookup)
        *(void **)&lookup = dlsym(driver, "cuGetProcAddress_v2");
    snprintf(base, sizeof(base), "%.*s", (int)(strlen(name) - (strstr(name, "_v2") ? 3 : 0)), name);
    if (!lookup || lookup(base, &found, 12000, 0, NULL))
        return NULL;
    return found;
}

static void *find(const char *name) {
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(route, "deepbind") ? 0 : RTLD_DEEPBIND));
    if (!driver)
        fail("no driver: %s", dlerror());
    void *found = NULL;
    if (!strcmp(route, "procaddress"))
        found = by_version(name);
    else if (strcmp(route, "dlvsym") || !(found = dlvsym(driver, name, "libcuda.so.1")))
        found = dlsym(driver, name);
    if (!found)
        fail("no %s", name);
    return found;
}

// Calls a function of the driver by its name; errno must be as it was.
#define CALL(name, types, ...)                                                                     \
    do {                                                                                           \
        int(*function) types;                                                                      \
        *(void **)&function = find(#name);                                                         \
        errno = ERRNO;                                                                             \
        int code = function(__VA_ARGS__);                                                          \
        if (code)                                                                                  \
            fail(#name " failed: %d", code);                                                       \
        if (errno != ERRNO)                                                                        \
            fail(#name " changed errno to %d", errno);                                             \
    } while (0)

// ---- What is the program's own ----

struct own {
    mode_t mask;
    struct sigaction actions[NSIG];
    sigset_t blocked;
    char locale[64];
    struct {
        dev_t device;
        ino_t inode;
    } files[3];
};

static struct own look(void) {
    struct own own;
    memset(&own, 0, sizeof(own));
    own.mask = umask(0);
    umask(own.mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &own.actions[i]);
    sigprocmask(SIG_BLOCK, NULL, &own.blocked);
    snprintf(own.locale, sizeof(own.locale), "%s", setlocale(LC_ALL, NULL));
    for (int i = 0; i < 3; i++) {
        struct stat status;
        if (fstat(i, &status) == 0) {
            own.files[i].device = status.st_dev;
            own.files[i].inode = status.st_ino;
        }
    }
    return own;
}

static void compare(const struct own *before, const struct own *now) {
    if (now->mask != before->mask)
        fail("the umask has changed");
    for (int i = 1; i < NSIG; i++)
        if (now->actions[i].sa_handler != before->actions[i].sa_handler ||
            now->actions[i].sa_flags != before->actions[i].sa_flags)
            fail("the handler of signal %d has changed", i);
    if (memcmp(&now->blocked, &before->blocked, sizeof(now->blocked)))
        fail("the signal mask has changed");
    if (strcmp(now->locale, before->locale))
        fail("the locale has changed");
    if (memcmp(now->files, before->files, sizeof(now->files)))
        fail("a standard descriptor has changed");
}

// ---- What it does ----

static void wait_for_line(void) {
    char byte = 0;
    ssize_t got;
    do
        got = read(STDIN_FILENO, &byte, 1);
    while ((got < 0 && errno == EINTR) || (got == 1 && byte != '\n'));
}

static void use_memory(void) {
    struct own before = look();
    const array_description shape = {SIDE, SIDE, 1, 1};
    const physical_properties where = {.type = 1, .location = {1, 0}};
    void *context, *stream, *pool, *array;
    uint64_t plain, pooled, physical, reserved = 0;
    size_t granularity = 0;
    int device;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuStreamCreate, (void **, unsigned), &stream, 0);
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &plain, PLAIN_BYTES);
    CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &pooled, ASYNC_BYTES, stream);
    CALL(cuArrayCreate_v2, (void **, const array_description *), &array, &shape);
    CALL(cuMemGetAllocationGranularity, (size_t *, const physical_properties *, int), &granularity,
         &where, 0);
    CALL(cuMemCreate, (uint64_t *, size_t, const physical_properties *, uint64_t), &physical,
         granularity, &where, 0);
    CALL(cuDeviceGetDefaultMemPool, (void **, int), &pool, device);
    CALL(cuMemPoolGetAttribute, (void *, int, void *), pool, POOL_RESERVED, &reserved);
    printf("holds %llu\n",
           (unsigned long long)(PLAIN_BYTES + SIDE * SIDE + granularity + reserved));
    fflush(stdout);
    wait_for_line();
    CALL(cuMemFree_v2, (uint64_t), plain);
    CALL(cuMemFreeAsync, (uint64_t, void *), pooled, stream);
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuArrayDestroy, (void *), array);
    CALL(cuMemRelease, (uint64_t), physical);
    struct own after = look();
    compare(&before, &after);
    puts("left");
    fflush(stdout);
    wait_for_line();
}

static volatile sig_atomic_t ticks;

static void tick(int number) {
    (void)number;
    ticks++;
}

static void under_handlers(void) {
    static const int signals[] = {SIGALRM, SIGUSR1, SIGUSR2, SIGSEGV, SIGBUS, SIGCHLD, SIGPIPE};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        sigaction(signals[i], &action, NULL);
    struct itimerval often = {{0, TICK_US}, {0, TICK_US}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    use_memory();
    setitimer(ITIMER_REAL, &never, NULL);
    if (!ticks)
        fail("no signal arrived");
}

static int wait_for(pid_t child) {
    int status;
    if (child <= 0 || waitpid(child, &status, 0) != child)
        fail("no child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    const char *place = arguments[2];
    route = arguments[1];
    char *again[] = {arguments[0], arguments[1], "here", NULL};
    umask(027);
    if (!strcmp(place, "exec")) {
        execv("/proc/self/exe", again);
        return 1;
    }
    if (!strcmp(place, "vfork")) {
        pid_t child = vfork();
        if (child == 0) {
            execv("/proc/self/exe", again);
            _exit(1);
        }
        return wait_for(child);
    }
    int forks = !strcmp(place, "fork"), clones = !strcmp(place, "clone");
    if (forks || clones) {
        find("cuInit");  // it has met the driver before
        pid_t child = forks ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child != 0)
            return wait_for(child);
    }
    if (!strcmp(place, "handlers"))
        under_handlers();
    else
        use_memory();
    fflush(stdout);
    _exit(0);
}
