// children.h: child programs of the benchmarks, each with what its configuration preloads.
//
// Every child has a deadline: a preloaded library may crash or hang it, and that is a result, not
// the end of the benchmark.
#ifndef WEIR_BENCH_CHILDREN_H
#define WEIR_BENCH_CHILDREN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// What stands in front of the driver in one column of the table.
struct setting {
    const char *preload;     // path of the library, or NULL for none
    const char *driver_dir;  // folder of the libcuda.so.1 to use, or NULL for none
    int keep_socket;         // pass WEIR_SOCKET on: this library talks to the agent
    int context_ms;          // how long the null driver takes to make a context
    const char *argument;    // of the child, or NULL for none
};

// Starts `path` with `out` as its standard output and `in` as its input (-1: /dev/null). The
// caller's descriptors must be close-on-exec. Returns its pid, or -1.
pid_t start_child(const char *path, const struct setting *setting, int in, int out);

// Reads what children write to `fd` until end of file, `lines` lines, a full buffer or the
// deadline, and terminates it. Returns its length; *late is set if it was the deadline.
size_t read_lines(int fd, char *text, size_t bytes, int lines, uint64_t deadline_ns, int *late);

// Waits until the child ends, kills it at the deadline. Returns its wait status, or -1 if it was
// killed or never started (pid -1).
int end_child(pid_t pid, uint64_t deadline_ns);

// Why a child failed by its status: "signal 11", "exit 3", "hung or not started", into `text`; 0 if
// it did not.
int describe_failure(int status, char *text, size_t bytes);

// Hundredths of a second that the hypervisor and all together took, from /proc/stat.
void read_steal(uint64_t *steal, uint64_t *all);

#endif
