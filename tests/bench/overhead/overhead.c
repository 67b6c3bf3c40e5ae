// overhead.c: what preloaded libraries cost, over the null driver, put beside the bare driver.
//
// Every round measures every setting, in turns, so that noise meets all alike. Shown are medians
// over the rounds, and as "added" the median of the differences to the bare driver at the same
// time. A promise is judged by the best of three thirds of the rounds. A library that crashes the
// program is reported in its column; one that hangs it is not asked again.
#define _GNU_SOURCE
#include "children.h"
#include "driver_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SETTINGS_MAX = 8,
    ROUNDS_MAX = 64,
    QUICK_ROUNDS = 12,
    LONG_ROUNDS = 36,
    STARTS = 5,  // of start, a round
    TRUES = 20,  // of /bin/true, a round
    TURNS_MAX = 20,
    CROWD = 64,       // processes at once
    CROWD_EVERY = 3,  // rounds
    CONTEXT_MS = 100,
};

static const uint64_t MS = 1000000;
static const uint64_t CHILD_MS_MAX = 20000;

enum measure {
    LAUNCH_NEW,
    LAUNCH,
    LAUNCH_DLSYM,
    LAUNCH_PROCADDRESS,
    LAUNCH_8,
    ALLOC,
    ALLOC_LIVE,
    REPLACE_LIVE,
    LAUNCH_THREAD,
    LAUNCH_EXTENDED,
    LAUNCH_EXTENDED_THREAD,
    LAUNCH_COOPERATIVE,
    LAUNCH_COOPERATIVE_THREAD,
    LAUNCH_MULTI_DEVICE,
    LAUNCH_OLD,
    LAUNCH_GRID,
    LAUNCH_GRID_ASYNC,
    LAUNCH_GRAPH,
    LAUNCH_GRAPH_THREAD,
    LAUNCH_HOST,
    LAUNCH_HOST_THREAD,
    ASYNC,
    ASYNC_LIVE,
    POOL,
    POOL_LIVE,
    ARRAY,
    PHYSICAL,
    INFO,
    LOOK_UP,
    START,
    CROWD_ONLY,
    CROWD_INIT,
    CROWD_SLOW,
    TRUE_START,
    TOTAL_BYTES,
    MEASURES,
};

// A form of a launch: variants.c's key is the export's name.
#define VARIANT(export) export, export

// `key` is what calls.c prints; measures without one are taken here. `promised` is the most that
// weir may add, 0 for no promise.
static const struct {
    const char *title, *key, *unit;
    double promised;
} measures[MEASURES] = {
    [LAUNCH_NEW] = {"launch, while its kernel is new", "launch_new", "ns", 0},
    [LAUNCH] = {"launch, 1 thread", "launch", "ns", 10},
    [LAUNCH_DLSYM] = {"launch, pointer from dlsym", "launch_dlsym", "ns", 10},
    [LAUNCH_PROCADDRESS] = {"launch, from cuGetProcAddress", "launch_procaddress", "ns", 10},
    [LAUNCH_8] = {"launch, 8 threads", "launch_8", "ns", 10},
    [ALLOC] = {"alloc+free, 1 live", "alloc", "ns", 100},
    [ALLOC_LIVE] = {"alloc+free, 100,000 live", "alloc_live", "ns", 100},
    [REPLACE_LIVE] = {"replace one of 100,000 live", "replace_live", "ns", 0},
    [LAUNCH_THREAD] = {VARIANT("cuLaunchKernel_ptsz"), "ns", 10},
    [LAUNCH_EXTENDED] = {VARIANT("cuLaunchKernelEx"), "ns", 10},
    [LAUNCH_EXTENDED_THREAD] = {VARIANT("cuLaunchKernelEx_ptsz"), "ns", 10},
    [LAUNCH_COOPERATIVE] = {VARIANT("cuLaunchCooperativeKernel"), "ns", 10},
    [LAUNCH_COOPERATIVE_THREAD] = {VARIANT("cuLaunchCooperativeKernel_ptsz"), "ns", 10},
    [LAUNCH_MULTI_DEVICE] = {VARIANT("cuLaunchCooperativeKernelMultiDevice"), "ns", 10},
    [LAUNCH_OLD] = {VARIANT("cuLaunch"), "ns", 10},
    [LAUNCH_GRID] = {VARIANT("cuLaunchGrid"), "ns", 10},
    [LAUNCH_GRID_ASYNC] = {VARIANT("cuLaunchGridAsync"), "ns", 10},
    [LAUNCH_GRAPH] = {VARIANT("cuGraphLaunch"), "ns", 10},
    [LAUNCH_GRAPH_THREAD] = {VARIANT("cuGraphLaunch_ptsz"), "ns", 10},
    [LAUNCH_HOST] = {VARIANT("cuLaunchHostFunc"), "ns", 10},
    [LAUNCH_HOST_THREAD] = {VARIANT("cuLaunchHostFunc_ptsz"), "ns", 10},
    [ASYNC] = {"async alloc+free, 1 live", "async", "ns", 100},
    [ASYNC_LIVE] = {"async alloc+free, 100,000 live", "async_live", "ns", 100},
    [POOL] = {"the same from a pool, 1 live", "pool", "ns", 100},
    [POOL_LIVE] = {"the same from a pool, 100,000 live", "pool_live", "ns", 100},
    [ARRAY] = {"array create+destroy", "array", "ns", 0},
    [PHYSICAL] = {"cuMemCreate+cuMemRelease", "physical", "ns", 0},
    [INFO] = {"cuMemGetInfo", "info", "ns", 20},
    [LOOK_UP] = {"cuGetProcAddress, hooked name", "look_up", "ns", 50},
    [START] = {"dlopen + cuInit", NULL, "us", 300},
    [CROWD_ONLY] = {"64 at once, to the last cuInit", NULL, "ms", 0},
    [CROWD_INIT] = {"the same, contexts follow", NULL, "ms", 0},
    [CROWD_SLOW] = {"the same, contexts take 100 ms", NULL, "ms", 0},
    [TRUE_START] = {"/bin/true", NULL, "us", 50},
    [TOTAL_BYTES] = {"total memory that it reports", "total_bytes", "MiB", 0},
};

struct column {
    const char *title;
    struct setting setting;
    double values[MEASURES][ROUNDS_MAX];  // NaN where there is none
    double added[MEASURES][ROUNDS_MAX];   // to the bare driver, next to it in time
    char failure[64];
    int hung;
};

static struct column columns[SETTINGS_MAX];
static int column_count, rounds = QUICK_ROUNDS;
static char folder[PATH_MAX], calls_path[PATH_MAX + 16], start_path[PATH_MAX + 16];

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The median of those that are numbers; NaN if none is.
static double median(const double *values, int count) {
    double sorted[ROUNDS_MAX];
    int known = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i]))
            sorted[known++] = values[i];
    if (!known)
        return NAN;
    qsort(sorted, (size_t)known, sizeof(*sorted), by_value);
    return sorted[known / 2];
}

// What `column` adds to the bare driver: the median of rounds first … first+count-1.
static double added(const struct column *column, enum measure measure, int first, int count) {
    return median(&column->added[measure][first], count);
}

static double best_added(const struct column *column, enum measure measure) {
    double best = NAN;
    for (int third = 0; third < 3; third++) {
        int first = third * rounds / 3, next = (third + 1) * rounds / 3;
        best = fmin(best, added(column, measure, first, next - first));
    }
    return best;
}

static void note_failure(struct column *column, const char *program, int status) {
    char why[32];
    column->hung |= status == -1;
    if (describe_failure(status, why, sizeof(why)) && !column->failure[0])
        snprintf(column->failure, sizeof(column->failure), "%s: %s", program, why);
}

static void take_calls(struct column *column, int round) {
    int ends[2], late;
    char text[4096], *rest = text;
    uint64_t deadline = now_ns() + CHILD_MS_MAX * MS;
    if (column->hung || pipe2(ends, O_CLOEXEC))
        return;
    pid_t pid = start_child(calls_path, &column->setting, -1, ends[1]);
    close(ends[1]);
    read_lines(ends[0], text, sizeof(text), INT_MAX, deadline, &late);
    close(ends[0]);
    note_failure(column, "calls", end_child(pid, deadline));
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char key[64];
        double value;
        if (!strncmp(line, "failed", 6) || sscanf(line, "%63s %lf", key, &value) != 2) {
            if (*line)
                snprintf(column->failure, sizeof(column->failure), "%.60s", line);
            continue;
        }
        for (int i = 0; i < MEASURES; i++)
            if (measures[i].key && !strcmp(measures[i].key, key))
                column->values[i][round] = i == TOTAL_BYTES ? value / (1 << 20) : value;
    }
}

// `count` of start at once, with its argument, if any. Microseconds from before the first is made
// (or from its own dlopen, if alone) to the last cuInit; NaN if one of them failed.
static double take_starts(struct column *column, int count, const char *argument, int context_ms) {
    int in[2], out[2], late, seen = 0;
    char text[CROWD * 64], *rest = text;
    pid_t pids[CROWD];
    struct setting setting = column->setting;
    setting.context_ms = context_ms;
    setting.argument = argument;
    if (column->hung || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return NAN;
    uint64_t first = now_ns(), last = 0, deadline = first + CHILD_MS_MAX * MS;
    for (int i = 0; i < count; i++)
        pids[i] = start_child(start_path, &setting, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    read_lines(out[0], text, sizeof(text), argument ? count : 2 * count, deadline, &late);
    close(in[1]);
    for (int i = 0; i < count; i++)
        note_failure(column, "start", end_child(pids[i], deadline));
    close(out[0]);
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        unsigned long long begun, ended;
        if (sscanf(line, "%llu %llu", &begun, &ended) != 2)
            continue;
        seen++;
        if (count == 1)
            first = begun;
        if (ended > last)
            last = ended;
    }
    return seen == count ? (double)(last - first) / 1000 : NAN;
}

static double take_true(struct column *column) {
    if (column->hung)
        return NAN;
    uint64_t start = now_ns();
    int status =
        end_child(start_child("/bin/true", &column->setting, -1, -1), start + CHILD_MS_MAX * MS);
    note_failure(column, "/bin/true", status);
    return status == 0 ? (double)(now_ns() - start) / 1000 : NAN;
}

// Takes a measure `count` times of every column in turn. Differences are taken between neighbours,
// so that what else the machine does meets both.
static void take_turns(enum measure measure, int round, int count,
                       double (*take)(struct column *column)) {
    double each[SETTINGS_MAX][TURNS_MAX], difference[SETTINGS_MAX][TURNS_MAX];
    for (int n = 0; n < count; n++) {
        for (int i = 0; i < column_count; i++) {
            each[i][n] = take(&columns[i]);
            difference[i][n] = each[i][n] - each[0][n];
        }
    }
    for (int i = 0; i < column_count; i++) {
        columns[i].values[measure][round] = median(each[i], count);
        columns[i].added[measure][round] = median(difference[i], count);
    }
}

static double take_start(struct column *column) {
    return take_starts(column, 1, NULL, 0);
}

static double take_init_crowd(struct column *column) {
    return take_starts(column, CROWD, "init", 0) / 1000;
}

static double take_crowd(struct column *column) {
    return take_starts(column, CROWD, NULL, 0) / 1000;
}

static double take_slow_crowd(struct column *column) {
    return take_starts(column, CROWD, NULL, CONTEXT_MS) / 1000;
}

static void take_round(int round) {
    for (int i = 0; i < column_count; i++)
        take_calls(&columns[(i + round) % column_count], round);
    for (int i = 0; i < column_count; i++)
        for (int measure = 0; measure < MEASURES; measure++)
            columns[i].added[measure][round] =
                columns[i].values[measure][round] - columns[0].values[measure][round];
    take_turns(START, round, STARTS, take_start);
    take_turns(TRUE_START, round, TRUES, take_true);
    if (round % CROWD_EVERY == 0) {
        take_turns(CROWD_ONLY, round, 1, take_init_crowd);
        take_turns(CROWD_INIT, round, 1, take_crowd);
        take_turns(CROWD_SLOW, round, 1, take_slow_crowd);
    }
}

static void print_table(double steal_percent) {
    printf("over the null driver: medians of %d interleaved rounds, %ld cores, steal %.1f %%;\n"
           "in brackets what is added to the bare driver\n\n%-41s",
           rounds, sysconf(_SC_NPROCESSORS_ONLN), steal_percent, "");
    for (int i = 0; i < column_count; i++)
        printf(" %20s", columns[i].title);
    for (int i = 0; i < MEASURES; i++) {
        printf("\n%s, %s%*s", measures[i].title, measures[i].unit,
               (int)(39 - strlen(measures[i].title) - strlen(measures[i].unit)), "");
        for (int j = 0; j < column_count; j++) {
            double value = median(columns[j].values[i], rounds);
            char cell[32] = "-";
            if (!isnan(value))
                snprintf(cell, sizeof(cell), "%.1f", value);
            if (!isnan(value) && j > 0 && i != TOTAL_BYTES)
                snprintf(cell, sizeof(cell), "%.1f (%+.1f)", value,
                         added(&columns[j], i, 0, rounds));
            printf(" %20s", cell);
        }
    }
    puts("");
    for (int i = 0; i < column_count; i++)
        if (columns[i].failure[0])
            printf("%s failed: %s\n", columns[i].title, columns[i].failure);
    puts("");
}

// A library that caps nothing costs nothing, so figures count only where it reports another total
// than the bare driver. Returns whether every promise holds.
static int print_promises(const struct column *column) {
    double total = median(column->values[TOTAL_BYTES], rounds);
    int all = 1,
        enforced = !isnan(total) && total != median(columns[0].values[TOTAL_BYTES], rounds);
    if (!enforced)
        printf("%s does not cap here (is it run by weir run with a cap?): no promise counts\n",
               column->title);
    for (int i = 0; i < MEASURES; i++) {
        if (measures[i].promised == 0)
            continue;
        double got = best_added(column, i);
        int holds = enforced && !column->failure[0] && got <= measures[i].promised;
        printf("promise: %s, promised at most %.0f %s added, got %.1f %s, holds %s\n",
               measures[i].title, measures[i].promised, measures[i].unit, got, measures[i].unit,
               holds ? "yes" : "no");
        all &= holds;
    }
    return all;
}

static int add_column(const char *preload) {
    char *path = NULL;
    if (column_count == SETTINGS_MAX || (preload && !(path = realpath(preload, NULL)))) {
        fprintf(stderr, "overhead: %s: %s\n", preload,
                path ? "too many libraries" : strerror(errno));
        return 2;
    }
    struct column *column = &columns[column_count++];
    column->title = preload ? basename(strdup(path)) : "bare";
    column->setting.preload = path;
    column->setting.driver_dir = folder;
    column->setting.keep_socket = preload && !strcmp(column->title, "libweir.so");
    for (int i = 0; i < MEASURES; i++)
        for (int j = 0; j < ROUNDS_MAX; j++)
            column->values[i][j] = column->added[i][j] = NAN;
    return 0;
}

static int find_programs(void) {
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (length < 0)
        return 1;
    dirname(folder);
    snprintf(calls_path, sizeof(calls_path), "%s/calls", folder);
    snprintf(start_path, sizeof(start_path), "%s/start", folder);
    return 0;
}

static int read_arguments(int count, char **arguments) {
    int error = find_programs() || add_column(NULL);
    for (int i = 1; i < count && !error; i++) {
        if (!strcmp(arguments[i], "--long"))
            rounds = LONG_ROUNDS;
        else if (!strcmp(arguments[i], "--rounds") && i + 1 < count)
            rounds = atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--preload") && i + 1 < count)
            error = add_column(arguments[++i]);
        else
            error = 2;
    }
    return error || rounds < 1 || rounds > ROUNDS_MAX;
}

int main(int count, char **arguments) {
    uint64_t steal[2], all[2];
    int good = 1;
    if (read_arguments(count, arguments)) {
        fprintf(stderr, "usage: overhead [--long | --rounds N] [--preload LIBRARY]…\n");
        return 2;
    }
    read_steal(&steal[0], &all[0]);
    for (int round = 0; round < rounds; round++)
        take_round(round);
    read_steal(&steal[1], &all[1]);
    print_table(all[1] > all[0] ? 100.0 * (double)(steal[1] - steal[0]) / (double)(all[1] - all[0])
                                : 0);
    for (int i = 1; i < column_count; i++)
        if (columns[i].setting.keep_socket)
            good &= print_promises(&columns[i]);
    return !good;
}
