// crowd.c: what many processes at once cost. The program start (start.c) is started 64 and 200
// times at once, with the library and without it in turns: to the last cuInit, and to the last
// context, which the driver makes at once or takes 100 ms for. Then 1,000 of them stay and do
// nothing, and the agent's memory and processor time are read.
//
// Usage: crowd --preload LIBRARY --agent PID [--rounds N] [--sessions N] [--idle SECONDS], inside
// of weir run.
#define _GNU_SOURCE
#include "children.h"
#include "driver_calls.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHILDREN_MAX = 2000,
    ROUNDS_MAX = 100,
    LINE_BYTES = 64,
    CONTEXT_MS = 100,
    IDLE_MIB_MAX = 64,
    IDLE_PERCENT_MAX = 2,
};

static const uint64_t MS = 1000000;
static const uint64_t CHILD_MS_MAX = 60000;
static const double RATIO_MAX = 1.2;

static char start_path[PATH_MAX];
static char text[CHILDREN_MAX * LINE_BYTES];

// A crowd that has started and is still there.
struct crowd {
    pid_t pids[CHILDREN_MAX];
    int count;
    int hold;           // closing it ends them
    double init_ms;     // from before the first was made to the last cuInit; NaN if one failed
    double context_ms;  // to the last context
};

static void start_crowd(struct crowd *crowd, const struct setting *setting, int count) {
    int in[2], out[2], late, seen = 0;
    crowd->count = count;
    crowd->init_ms = crowd->context_ms = NAN;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        exit(1);
    uint64_t first = now_ns(), init = 0, context = 0;
    for (int i = 0; i < count; i++)
        crowd->pids[i] = start_child(start_path, setting, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    crowd->hold = in[1];
    read_lines(out[0], text, sizeof(text), 2 * count, first + CHILD_MS_MAX * MS, &late);
    close(out[0]);
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        unsigned long long before, after;
        if (sscanf(line, "context %llu", &after) == 1) {
            context = after > context ? after : context;
            seen++;
        } else if (sscanf(line, "%llu %llu", &before, &after) == 2) {
            init = after > init ? after : init;
        }
    }
    if (seen != count)
        return;
    crowd->init_ms = (double)(init - first) / (double)MS;
    crowd->context_ms = (double)(context - first) / (double)MS;
}

static void end_crowd(struct crowd *crowd) {
    close(crowd->hold);
    uint64_t deadline = now_ns() + CHILD_MS_MAX * MS;
    for (int i = 0; i < crowd->count; i++)
        end_child(crowd->pids[i], deadline);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof(*values));
    qsort(sorted, (size_t)count, sizeof(*sorted), compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static int promise(const char *title, double promised, const char *unit, double got) {
    int holds = got <= promised;
    printf("promise: %s, promised at most %.1f%s, got %.2f%s, holds %s\n", title, promised, unit,
           got, unit, holds ? "yes" : "no");
    return holds;
}

// Neighbours in time are compared, so that what else the machine does meets both.
static int compare_crowds(const char *preload, int count, int context_ms, int rounds) {
    static struct crowd crowd;
    struct setting settings[2] = {{.context_ms = context_ms},
                                  {.preload = preload, .keep_socket = 1, .context_ms = context_ms}};
    double init[2][ROUNDS_MAX], context[2][ROUNDS_MAX], ratio[2][ROUNDS_MAX];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            start_crowd(&crowd, &settings[i], count);
            end_crowd(&crowd);
            init[i][round] = crowd.init_ms;
            context[i][round] = crowd.context_ms;
        }
        ratio[0][round] = init[1][round] / init[0][round];
        ratio[1][round] = context[1][round] / context[0][round];
    }
    char title[128];
    printf("%d at once, contexts take %d ms: to the last cuInit %.0f ms, %.0f with the library; to "
           "the "
           "last context %.0f and %.0f\n",
           count, context_ms, median(init[0], rounds), median(init[1], rounds),
           median(context[0], rounds), median(context[1], rounds));
    snprintf(title, sizeof(title), "%d at once, contexts take %d ms, to the last cuInit", count,
             context_ms);
    int good = promise(title, RATIO_MAX, " times", median(ratio[0], rounds));
    snprintf(title, sizeof(title), "%d at once, contexts take %d ms, to the last context", count,
             context_ms);
    return promise(title, RATIO_MAX, " times", median(ratio[1], rounds)) && good;
}

// What a process has in memory, in MiB, and the processor time that its threads have used, in
// seconds.
static void read_process(int pid, double *resident_mib, double *busy_s) {
    char path[64], line[256];
    unsigned long long kib = 0, user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "VmRSS: %llu", &kib);
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (!file || fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                        &user, &system) != 2)
        exit(1);
    fclose(file);
    *resident_mib = (double)kib / 1024;
    *busy_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static int idle_sessions(const char *preload, int agent, int sessions, int seconds) {
    static struct crowd crowd;
    struct setting setting = {.preload = preload, .keep_socket = 1};
    double resident_mib, before_s, after_s;
    start_crowd(&crowd, &setting, sessions);
    sleep(1);
    read_process(agent, &resident_mib, &before_s);
    sleep((unsigned)seconds);
    read_process(agent, &resident_mib, &after_s);
    int complete = !isnan(crowd.context_ms);
    end_crowd(&crowd);
    if (!complete) {
        printf("not all of %d processes started\n", sessions);
        return 0;
    }
    char title[64];
    snprintf(title, sizeof(title), "%d idle sessions, agent's memory", sessions);
    int good = promise(title, IDLE_MIB_MAX, " MiB", resident_mib);
    snprintf(title, sizeof(title), "%d idle sessions, agent's time", sessions);
    return promise(title, IDLE_PERCENT_MAX, " % of a core", 100 * (after_s - before_s) / seconds) &&
           good;
}

static void find_start(const char *program) {
    const char *slash = strrchr(program, '/');
    int bytes = slash ? (int)(slash - program) : 1;
    snprintf(start_path, sizeof(start_path), "%.*s/start", bytes, slash ? program : ".");
}

int main(int argc, char **argv) {
    const char *preload = NULL;
    int agent = 0, rounds = 5, sessions = 1000, seconds = 5, good = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--preload"))
            preload = argv[i + 1];
        else if (!strcmp(argv[i], "--agent"))
            agent = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--sessions"))
            sessions = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--idle"))
            seconds = atoi(argv[i + 1]);
    }
    if (!preload || agent <= 0 || rounds < 1 || rounds > ROUNDS_MAX || sessions < 1 ||
        sessions > CHILDREN_MAX || seconds < 1) {
        fprintf(stderr, "usage: crowd --preload LIBRARY --agent PID [--rounds N] [--sessions N] "
                        "[--idle SECONDS]\n");
        return 2;
    }
    find_start(argv[0]);
    static const int counts[] = {64, 200}, delays[] = {0, CONTEXT_MS};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            good &= compare_crowds(preload, counts[i], delays[j], rounds);
    good &= idle_sessions(preload, agent, sessions, seconds);
    return !good;
}
