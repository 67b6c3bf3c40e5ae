// crowd.c: what many processes at once cost. The program start (start.c) is started 64 and 200
// times at once, with the library and without it in turns, three ways: cuInit and nothing after it;
// cuInit and a context that the driver makes at once, as no real one does, which shows what a
// session costs and has no promise; the same where it takes 100 ms. A process is ready with the
// last of these that it does, and that is promised; how late the last cuInit comes while others
// make contexts already is measured beside it. Times run from before the first process is made to
// the last cuInit and to the last context; ratios are of neighbours in time. Processor time is that
// of the processes, from their making to their end, and of the agent meanwhile. Then 1,000 of them
// stay and do nothing, and the agent's memory and processor time are read.
//
// Usage: crowd --preload LIBRARY --agent PID [--rounds N] [--sessions N] [--idle SECONDS], inside
// of weir run. --count N and --way init|0|100 take one crowd only, and no idle sessions.
#define _GNU_SOURCE
#include "children.h"
#include "driver_calls.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    CHILDREN_MAX = 2000,
    ROUNDS_MAX = 100,
    LINE_BYTES = 64,
    CONTEXT_MS = 100,
    SETTLE_MS = 20,  // in which the agent has done what the end of a crowd makes it do
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

// What they do, and how long the driver takes for a context, in milliseconds.
static const struct way {
    const char *name, *title, *argument;
    int context_ms;
} ways[] = {
    {"init", "nothing after cuInit", "init", 0},
    {"0", "contexts take no time", NULL, 0},
    {"100", "contexts take 100 ms", NULL, CONTEXT_MS},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

// What is measured of each crowd, in milliseconds.
enum { INIT, CONTEXT, OWN_CPU, AGENT_CPU, FIGURES };

static void start_crowd(struct crowd *crowd, const struct setting *setting, int count) {
    int in[2], out[2], late, inits = 0, contexts = 0, wanted = setting->argument ? 0 : count;
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
    read_lines(out[0], text, sizeof(text), count + wanted, first + CHILD_MS_MAX * MS, &late);
    close(out[0]);
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        unsigned long long before, after;
        if (sscanf(line, "context %llu", &after) == 1) {
            context = after > context ? after : context;
            contexts++;
        } else if (sscanf(line, "%llu %llu", &before, &after) == 2) {
            init = after > init ? after : init;
            inits++;
        }
    }
    if (inits == count)
        crowd->init_ms = (double)(init - first) / (double)MS;
    if (contexts == count)
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

// The processor time of another process so far, in milliseconds.
static double cpu_of(int pid) {
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
        exit(1);
    return (double)time.tv_sec * 1000 + (double)time.tv_nsec / 1e6;
}

static double cpu_of_children(void) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

// One crowd from its beginning to its end, the agent's part in that included.
static void take_crowd(const struct setting *setting, int count, int agent, double *figures) {
    static struct crowd crowd;
    double own = cpu_of_children(), agents = cpu_of(agent);
    start_crowd(&crowd, setting, count);
    end_crowd(&crowd);
    usleep(SETTLE_MS * 1000);
    figures[INIT] = crowd.init_ms;
    figures[CONTEXT] = crowd.context_ms;
    figures[OWN_CPU] = (cpu_of_children() - own) / count;
    figures[AGENT_CPU] = (cpu_of(agent) - agents) / count;
}

static int judge(int promised, const char *title, double ratio) {
    if (promised)
        return promise(title, RATIO_MAX, " times", ratio);
    printf("measured: %s, got %.2f times\n", title, ratio);
    return 1;
}

// Neighbours in time are compared, so that what else the machine does meets both.
static int compare_crowds(const char *preload, int agent, int count, const struct way *way,
                          int rounds) {
    struct setting settings[2] = {{0}, {.preload = preload, .keep_socket = 1}};
    double all[2][FIGURES][ROUNDS_MAX], ratio[2][ROUNDS_MAX];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            double figures[FIGURES];
            settings[i].argument = way->argument;
            settings[i].context_ms = way->context_ms;
            take_crowd(&settings[i], count, agent, figures);
            for (int j = 0; j < FIGURES; j++)
                all[i][j][round] = figures[j];
        }
        for (int j = 0; j < 2; j++)
            ratio[j][round] = all[1][j][round] / all[0][j][round];
    }
    double shown[2][FIGURES];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < FIGURES; j++)
            shown[i][j] = median(all[i][j], rounds);
    printf("%d at once, %s: to the last cuInit %.0f ms, with the library %.0f", count, way->title,
           shown[0][INIT], shown[1][INIT]);
    if (!way->argument)
        printf("; to the last context %.0f and %.0f", shown[0][CONTEXT], shown[1][CONTEXT]);
    printf(
        "\n  processor time of each process %.2f ms, with the library %.2f and the agent's %.2f\n",
        shown[0][OWN_CPU], shown[1][OWN_CPU], shown[1][AGENT_CPU]);
    char title[128];
    snprintf(title, sizeof(title), "%d at once, %s, to the last cuInit", count, way->title);
    int good = judge(way->argument != NULL, title, median(ratio[INIT], rounds));
    if (way->argument)
        return good;
    snprintf(title, sizeof(title), "%d at once, %s, to the last context", count, way->title);
    return judge(way->context_ms > 0, title, median(ratio[CONTEXT], rounds)) && good;
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

static int usage(void) {
    fprintf(stderr, "usage: crowd --preload LIBRARY --agent PID [--rounds N] [--sessions N] "
                    "[--idle SECONDS] [--count N] [--way init|0|100]\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *preload = NULL, *only = NULL;
    int agent = 0, rounds = 5, sessions = 1000, seconds = 5, counts[] = {64, 200}, sizes = 2;
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
        else if (!strcmp(argv[i], "--count"))
            counts[0] = atoi(argv[i + 1]), sizes = 1;
        else if (!strcmp(argv[i], "--way"))
            only = argv[i + 1];
        else
            return usage();
    }
    if (!preload || agent <= 0 || rounds < 1 || rounds > ROUNDS_MAX || sessions < 1 ||
        sessions > CHILDREN_MAX || seconds < 1 || counts[0] < 1 || counts[0] > CHILDREN_MAX)
        return usage();
    find_start(argv[0]);
    int good = 1;
    for (int i = 0; i < sizes; i++)
        for (int j = 0; j < WAYS; j++)
            if (!only || !strcmp(only, ways[j].name))
                good &= compare_crowds(preload, agent, counts[i], &ways[j], rounds);
    if (sizes == 2 && !only)
        good &= idle_sessions(preload, agent, sessions, seconds);
    return !good;
}
