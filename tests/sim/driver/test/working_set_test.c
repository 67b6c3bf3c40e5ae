// working_set_test.c: working sets of a part of the card and of more than all of it, by faults and
// by prefetches: what moves, and that the times are those that the machine's bandwidths imply.
#include "../../../bench/managed/working_set.h"
#include "test_driver.h"

static struct sim_machine *machine;

static void within_a_tenth(double got, double wanted) {
    if (got < wanted * 0.9 || got > wanted * 1.1) {
        fprintf(stderr, "%f, not %f\n", got, wanted);
        exit(1);
    }
}

// All of the working set, but for the pages at the edges of pieces.
static void about(uint64_t got, uint64_t wanted) {
    within_a_tenth((double)got + 1, (double)wanted + 1);
}

static struct working_set measure(double part, bool prefetch) {
    struct working_set set = {.part = part, .prefetch = prefetch};
    OK(cuCtxSynchronize());
    CHECK_EQ(working_set_measure(machine, &set), 0);
    within_a_tenth(set.cold.ms, set.cold.implied_ms);
    within_a_tenth(set.warm.ms, set.warm.implied_ms);
    return set;
}

static void check_part(double part) {
    struct working_set faults = measure(part, false), prefetch = measure(part, true);
    bool over = part > 1;
    about(faults.cold.moved.fault_in_bytes, faults.bytes);
    about(prefetch.cold.moved.prefetch_in_bytes, prefetch.bytes);
    CHECK_EQ(prefetch.cold.moved.fault_in_bytes, 0);
    about(faults.warm.moved.fault_in_bytes, over ? faults.bytes : 0);
    about(prefetch.warm.moved.prefetch_in_bytes, over ? prefetch.bytes : 0);
    CHECK_EQ(prefetch.warm.moved.fault_in_bytes, 0);
    about(faults.warm.moved.evicted_bytes, over ? faults.bytes : 0);
    within_a_tenth(faults.cold.ms / prefetch.cold.ms,
                   faults.cold.implied_ms / prefetch.cold.implied_ms);
    within_a_tenth(faults.warm.ms / prefetch.warm.ms,
                   faults.warm.implied_ms / prefetch.warm.implied_ms);
    if (over)
        CHECK(faults.warm.ms > 1.8 * prefetch.warm.ms);
}

static void three_quarters(void) {
    check_part(0.75);
}

static void all_of_it(void) {
    check_part(1.0);
}

static void five_quarters(void) {
    check_part(1.25);
}

static void one_and_a_half(void) {
    check_part(1.5);
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    char path[4096];
    for (unsigned i = 0; i < 2; i++) {
        config.gpus[i].page_bytes = 32768;
        config.gpus[i].fault_batch_ns = 35000;
        config.gpus[i].fault_batch_pages = 1;
    }
    start_driver_on(&config);
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    static const struct test tests[] = {TEST(three_quarters), TEST(all_of_it), TEST(five_quarters),
                                        TEST(one_and_a_half)};
    int rc = RUN(tests);
    sim_machine_close(machine);
    stop_driver();
    return rc;
}
