// sys.h: system calls without the libc, so that errno, cancellation and signal state stay the
// host's.
//
// Every function returns what the kernel returns: a result, or -errno. Invariant: nothing here
// reads or writes memory of the libc; the structures are those of the kernel on 64-bit machines,
// where the libc's declarations of them are the same.
#ifndef WEIR_SYS_H
#define WEIR_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#if defined(__x86_64__)
static inline long weir_syscall(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// What tells threads apart without a system call: the address of their control block.
static inline uintptr_t weir_sys_self(void) {
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
}

static inline void weir_sys_pause(void) {
    __asm__ volatile("pause");
}
#elif defined(__aarch64__)
static inline long weir_syscall(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}

static inline uintptr_t weir_sys_self(void) {
    uintptr_t self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
}

static inline void weir_sys_pause(void) {
    __asm__ volatile("yield");
}
#else
#error "weir's library knows x86-64 and arm64"
#endif

// Of functions that are kept out of those which call them: those are often called, these are not.
#define WEIR_RARE __attribute__((noinline))

// Values that older headers lack.
#define WEIR_MADV_WIPEONFORK 18
#define WEIR_SO_COOKIE 57
#define WEIR_F_GET_SEALS 1034
#define WEIR_F_SEAL_SEAL 0x1
#define WEIR_F_SEAL_SHRINK 0x2
#define WEIR_F_SEAL_GROW 0x4
#define WEIR_F_SEAL_FUTURE_WRITE 0x10
#define WEIR_FUTEX_WAIT_PRIVATE 128
#define WEIR_FUTEX_WAKE_PRIVATE 129
#define WEIR_FUTEX_WAKE 1
#define WEIR_PR_SET_NAME 15

// The size of the kernel's signal sets, in bytes.
#define WEIR_SIGSET_BYTES 8u

static inline int weir_sys_failed(long result) {
    return result < 0 && result >= -4095;
}

// Anonymous private memory, or NULL.
static inline void *weir_sys_map(size_t bytes) {
    long at = weir_syscall(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return weir_sys_failed(at) ? NULL : (void *)at;
}

// Maps `fd` shared from its start; at `at`, in place of what is mapped there, unless that is NULL.
static inline void *weir_sys_map_shared(void *at, size_t bytes, int protection, int fd) {
    long got = weir_syscall(SYS_mmap, (long)at, (long)bytes, protection,
                            MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    return weir_sys_failed(got) ? NULL : (void *)got;
}

static inline int weir_sys_unmap(void *at, size_t bytes) {
    return (int)weir_syscall(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0);
}

static inline int weir_sys_mprotect(void *at, size_t bytes, int protection) {
    return (int)weir_syscall(SYS_mprotect, (long)at, (long)bytes, protection, 0, 0, 0);
}

static inline int weir_sys_madvise(void *at, size_t bytes, int advice) {
    return (int)weir_syscall(SYS_madvise, (long)at, (long)bytes, advice, 0, 0, 0);
}

static inline int weir_sys_open(const char *path, int flags, int mode) {
    return (int)weir_syscall(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, mode, 0, 0);
}

static inline int weir_sys_close(int fd) {
    return (int)weir_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

static inline long weir_sys_write(int fd, const void *data, size_t bytes) {
    return weir_syscall(SYS_write, fd, (long)data, (long)bytes, 0, 0, 0);
}

static inline long weir_sys_read(int fd, void *data, size_t bytes) {
    return weir_syscall(SYS_read, fd, (long)data, (long)bytes, 0, 0, 0);
}

// A file of memory with a name for people; `flags` are memfd_create's.
static inline int weir_sys_memfd(const char *name, unsigned flags) {
    return (int)weir_syscall(SYS_memfd_create, (long)name, (long)flags, 0, 0, 0, 0);
}

static inline long weir_sys_pread(int fd, void *data, size_t bytes, int64_t at) {
    return weir_syscall(SYS_pread64, fd, (long)data, (long)bytes, at, 0, 0);
}

// 0 where something lies at `path`, whether or not it may be opened.
static inline int weir_sys_exists(const char *path) {
    return (int)weir_syscall(SYS_faccessat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline long weir_sys_readlink(const char *path, char *to, size_t bytes) {
    return weir_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)to, (long)bytes, 0, 0);
}

static inline int weir_sys_fstat(int fd, struct stat *status) {
    return (int)weir_syscall(SYS_fstat, fd, (long)status, 0, 0, 0, 0);
}

static inline int weir_sys_fcntl(int fd, int command, long value) {
    return (int)weir_syscall(SYS_fcntl, fd, command, value, 0, 0, 0);
}

static inline int weir_sys_getpid(void) {
    return (int)weir_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

// Whether the process runs with another identity than that of its caller (set-user-id and the
// like).
static inline int weir_sys_changed_identity(void) {
    return weir_syscall(SYS_getuid, 0, 0, 0, 0, 0, 0) !=
               weir_syscall(SYS_geteuid, 0, 0, 0, 0, 0, 0) ||
           weir_syscall(SYS_getgid, 0, 0, 0, 0, 0, 0) !=
               weir_syscall(SYS_getegid, 0, 0, 0, 0, 0, 0);
}

static inline void weir_sys_name_thread(const char *name) {
    weir_syscall(SYS_prctl, WEIR_PR_SET_NAME, (long)name, 0, 0, 0, 0);
}

// CLOCK_MONOTONIC in milliseconds.
static inline uint64_t weir_sys_now_ms(void) {
    struct timespec now = {0, 0};
    weir_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline struct timespec weir_sys_timespec_us(uint64_t us) {
    return (struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
}

static inline void weir_sys_sleep_ms(uint64_t ms) {
    struct timespec length = weir_sys_timespec_us(ms * 1000);
    weir_syscall(SYS_nanosleep, (long)&length, 0, 0, 0, 0, 0);
}

// Sleeps while *word is `value`, at most `us` microseconds. May return early for no reason.
static inline void weir_sys_futex_wait(const uint32_t *word, uint32_t value, uint64_t us) {
    struct timespec length = weir_sys_timespec_us(us);
    weir_syscall(SYS_futex, (long)word, WEIR_FUTEX_WAIT_PRIVATE, value, (long)&length, 0, 0);
}

static inline void weir_sys_futex_wake(const uint32_t *word, int threads) {
    weir_syscall(SYS_futex, (long)word, WEIR_FUTEX_WAKE_PRIVATE, threads, 0, 0, 0);
}

// The same for waits on memory that processes share, which need not be writable here.
static inline void weir_sys_futex_wake_shared(const uint32_t *word, int threads) {
    weir_syscall(SYS_futex, (long)word, WEIR_FUTEX_WAKE, threads, 0, 0, 0);
}

// Replaces the calling thread's signal mask; `old` may be NULL.
static inline void weir_sys_signal_mask(const uint64_t *mask, uint64_t *old) {
    weir_syscall(SYS_rt_sigprocmask, 2 /* set */, (long)mask, (long)old, WEIR_SIGSET_BYTES, 0, 0);
}

// Whether the eight bytes at an address, a multiple of eight, can be read: the kernel looks at a
// signal mask before it finds that it is not told what to do with it.
static inline int weir_sys_readable(const void *at) {
    return weir_syscall(SYS_rt_sigprocmask, -1, (long)at, 0, WEIR_SIGSET_BYTES, 0, 0) != -EFAULT;
}

static inline int weir_sys_socket(int type) {
    return (int)weir_syscall(SYS_socket, AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0);
}

static inline int weir_sys_connect(int fd, const void *address, size_t bytes) {
    return (int)weir_syscall(SYS_connect, fd, (long)address, (long)bytes, 0, 0, 0);
}

// The kernel's number for a socket, never used again while the machine runs; 0 where `fd` is none.
// Where it does not tell (before Linux 4.12, and under emulators) that of the inode, which is used
// again after 4 billion.
static inline uint64_t weir_sys_socket_cookie(int fd) {
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    long rc = weir_syscall(SYS_getsockopt, fd, SOL_SOCKET, WEIR_SO_COOKIE, (long)&cookie,
                           (long)&bytes, 0);
    if (rc == 0)
        return cookie;
    struct stat status;
    int is_socket = rc != -EBADF && rc != -ENOTSOCK && weir_sys_fstat(fd, &status) == 0 &&
                    (status.st_mode & S_IFMT) == S_IFSOCK;
    return is_socket ? status.st_ino : 0;
}

static inline long weir_sys_send(int fd, const void *data, size_t bytes) {
    return weir_syscall(SYS_sendto, fd, (long)data, (long)bytes, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
}

static inline long weir_sys_recvmsg(int fd, struct msghdr *message) {
    return weir_syscall(SYS_recvmsg, fd, (long)message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0, 0, 0);
}

// Waits until one of these events has come to `fd`, or it is hung up, at most `ns` nanoseconds: 1,
// 0 for neither, or -errno.
static inline int weir_sys_wait(int fd, short events, uint64_t ns) {
    struct pollfd one = {.fd = fd, .events = events, .revents = 0};
    struct timespec length = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    return (int)weir_syscall(SYS_ppoll, (long)&one, 1, (long)&length, 0, WEIR_SIGSET_BYTES, 0);
}

static inline int weir_sys_wait_readable(int fd, uint64_t ms) {
    return weir_sys_wait(fd, POLLIN, ms * 1000000u);
}

static inline int weir_sys_wait_writable(int fd, uint64_t ms) {
    return weir_sys_wait(fd, POLLOUT, ms * 1000000u);
}

#endif
