# The simulated machine and driver: build/sim/libcuda.so.1, its tests, and both under sanitisers.
# Everything is compiled three times, into $(SIM_OUT)/{plain,asan,tsan}.

SIM_DIR := tests/sim
SIM_OUT := $(BUILD)/sim/obj
# Only the interpreter is worth more of the compiler's time.
SIM_CFLAGS := -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread \
  -MMD -MP
SIM_LDFLAGS := -pthread -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-Bsymbolic
# Floats must be neither contracted nor evaluated in another rounding mode than the instruction's.
SIM_INTERPRETER_CFLAGS := -O2 -D_GNU_SOURCE -ffp-contract=off -frounding-math -fno-math-errno
SIM_MACHINE_SOURCES := $(wildcard $(SIM_DIR)/*.c)
SIM_SOURCES := $(SIM_MACHINE_SOURCES) $(wildcard $(SIM_DIR)/driver/*.c $(SIM_DIR)/ptx/*.c)
SIM_TEST_DIR := $(SIM_DIR)/driver/test

SIM_TESTS := machine_test engine_test lock_test ledger_test residency_test lookup_test driver_test \
  visible_test work_test process_test managed_process_test fault_test mig_test mempool_share_test \
  export_test ipc_test ipc_event_test share_test
# Tests of the driver in one process, on the machine of test_driver.c.
SIM_GRAPH_TESTS := graph_test graph_change_test graph_memory_test graph_random_test capture_test
SIM_DRIVER_TESTS := array_test copy_test code_test link_test books_test launch_test context_test unsupported_test mempool_test mempool_model_test memop_test \
  managed_test managed_whole_test managed_data_test advice_test working_set_test vmm_test vmm_data_test peer_test $(SIM_GRAPH_TESTS)
SIM_TESTS += $(SIM_DRIVER_TESTS)

SIM_EXTRA_plain :=
SIM_EXTRA_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
  -fno-omit-frame-pointer
SIM_EXTRA_tsan := -O1 -g -fsanitize=thread -Wno-tsan

BUILD_TARGETS += $(BUILD)/sim/libcuda.so.1
TEST_TARGETS += sim-test
SANITIZE_TARGETS += sim-asan sim-tsan
GENERATE_TARGETS += sim-generate

# The exports are in driver/entry.S; their implementations bear other names.
$(SIM_OUT)/names.h: $(SIM_DIR)/driver/exports.inc
	@mkdir -p $(@D)
	sed -n 's/^E(\(.*\))$$/#define \1 impl_\1/p' $< >$@

# One kind of build: objects, the library, and the test programs beside it.
define SIM_KIND
SIM_OBJECTS_$(1) := $$(SIM_SOURCES:$$(SIM_DIR)/%.c=$$(SIM_OUT)/$(1)/%.o) \
  $$(SIM_OUT)/$(1)/driver/entry.o
SIM_MACHINE_OBJECTS_$(1) := $$(SIM_MACHINE_SOURCES:$$(SIM_DIR)/%.c=$$(SIM_OUT)/$(1)/%.o)

$$(SIM_OUT)/$(1)/%.o: $$(SIM_DIR)/%.c $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/driver/%.o: $$(SIM_DIR)/driver/%.c $$(SIM_DIR)/build.mk $$(SIM_OUT)/names.h
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) -include $$(SIM_OUT)/names.h $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/driver/test/%.o: $$(SIM_DIR)/driver/test/%.c $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/driver/entry.o: $$(SIM_DIR)/driver/entry.S $$(SIM_DIR)/driver/exports.inc
	@mkdir -p $$(@D)
	$$(CC) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/ptx/%.o: $$(SIM_DIR)/ptx/%.c $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_INTERPRETER_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/libcuda.so.1: $$(SIM_OBJECTS_$(1)) $$(SIM_DIR)/driver/driver.map
	$$(CC) $$(SIM_EXTRA_$(1)) -shared -Wl,-soname,libcuda.so.1 \
	  -Wl,--version-script=$$(SIM_DIR)/driver/driver.map $$(SIM_LDFLAGS) -o $$@ \
	  $$(SIM_OBJECTS_$(1)) -lm

# Tests of the machine alone.
$$(SIM_OUT)/$(1)/machine_test $$(SIM_OUT)/$(1)/engine_test \
  $$(SIM_OUT)/$(1)/lock_test $$(SIM_OUT)/$(1)/ledger_test $$(SIM_OUT)/$(1)/residency_test: \
  $$(SIM_OUT)/$(1)/%: \
  $$(SIM_OUT)/$(1)/driver/test/%.o $$(SIM_OUT)/$(1)/driver/test/test_machine.o \
  $$(SIM_MACHINE_OBJECTS_$(1))
	$$(CC) $$(SIM_EXTRA_$(1)) -pthread -o $$@ $$^

$$(SIM_OUT)/$(1)/driver_test $$(SIM_OUT)/$(1)/work_test: $$(SIM_OUT)/$(1)/driver/test/test_driver.o
$$(SIM_DRIVER_TESTS:%=$$(SIM_OUT)/$(1)/%): $$(SIM_OUT)/$(1)/driver/test/test_driver.o
$$(SIM_GRAPH_TESTS:%=$$(SIM_OUT)/$(1)/%): $$(SIM_OUT)/$(1)/driver/test/test_graph.o
$$(SIM_OUT)/$(1)/ledger_test $$(SIM_OUT)/$(1)/process_test $$(SIM_OUT)/$(1)/fault_test \
  $$(SIM_OUT)/$(1)/managed_process_test $$(SIM_OUT)/$(1)/mempool_share_test \
  $$(SIM_OUT)/$(1)/export_test $$(SIM_OUT)/$(1)/ipc_test $$(SIM_OUT)/$(1)/ipc_event_test \
  $$(SIM_OUT)/$(1)/share_test: \
  $$(SIM_OUT)/$(1)/driver/test/test_child.o
$$(SIM_OUT)/$(1)/export_test $$(SIM_OUT)/$(1)/ipc_test $$(SIM_OUT)/$(1)/ipc_event_test \
  $$(SIM_OUT)/$(1)/share_test $$(SIM_OUT)/$(1)/vmm_test $$(SIM_OUT)/$(1)/vmm_data_test $$(SIM_OUT)/$(1)/peer_test: \
  $$(SIM_OUT)/$(1)/driver/test/test_share.o
$$(SIM_OUT)/$(1)/working_set_test: $$(SIM_OUT)/$(1)/driver/test/working_set.o
$$(SIM_OUT)/$(1)/managed_test $$(SIM_OUT)/$(1)/managed_whole_test $$(SIM_OUT)/$(1)/managed_data_test $$(SIM_OUT)/$(1)/advice_test: \
  $$(SIM_OUT)/$(1)/driver/test/test_managed.o
$$(SIM_OUT)/$(1)/residency_test: $$(SIM_OUT)/$(1)/driver/test/residency_model.o

$$(SIM_OUT)/$(1)/driver/test/working_set.o: tests/bench/managed/working_set.c $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/%: $$(SIM_OUT)/$(1)/driver/test/%.o $$(SIM_OUT)/$(1)/driver/test/test_machine.o \
  $$(SIM_MACHINE_OBJECTS_$(1)) $$(SIM_OUT)/$(1)/libcuda.so.1
	$$(CC) $$(SIM_EXTRA_$(1)) -pthread -o $$@ $$^ -Wl,-rpath,'$$$$ORIGIN'
endef
$(foreach kind,plain asan tsan,$(eval $(call SIM_KIND,$(kind))))
.SECONDARY: $(foreach kind,plain asan tsan,$(SIM_TESTS:%=$(SIM_OUT)/$(kind)/driver/test/%.o) \
  $(SIM_OUT)/$(kind)/driver/test/launch_bench.o)
-include $(wildcard $(SIM_OUT)/*/*.d $(SIM_OUT)/*/*/*.d $(SIM_OUT)/*/*/*/*.d)

# Sanitised objects need symbols of the program's runtime: no -z defs for them.
$(SIM_OUT)/asan/libcuda.so.1 $(SIM_OUT)/tsan/libcuda.so.1: SIM_LDFLAGS := -pthread \
  -Wl,-z,now -Wl,-Bsymbolic

$(BUILD)/sim/libcuda.so.1: $(SIM_OUT)/plain/libcuda.so.1
	cp $< $@

# Runs every test of one kind of build. The tests fork while nobody else runs in them, which the
# thread sanitizer must be told to allow.
define SIM_RUN
.PHONY: $(1)
$(1): $(SIM_TESTS:%=$(SIM_OUT)/$(2)/%)
	$(SIM_OUT)/$(2)/machine_test
	$(SIM_OUT)/$(2)/engine_test
	$(SIM_OUT)/$(2)/lock_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/ledger_test
	$(SIM_OUT)/$(2)/residency_test
	$(SIM_OUT)/$(2)/lookup_test $(SIM_DIR)/testdata
	$(SIM_OUT)/$(2)/driver_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/visible_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/mig_test
	$(SIM_OUT)/$(2)/work_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/process_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/managed_process_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/fault_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/mempool_share_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/export_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/ipc_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/ipc_event_test
	TSAN_OPTIONS="die_after_fork=0" $(SIM_OUT)/$(2)/share_test
	for test in $(SIM_DRIVER_TESTS); do \
	  $(SIM_OUT)/$(2)/$$$$test; done
endef
$(eval $(call SIM_RUN,sim-test,plain))
$(eval $(call SIM_RUN,sim-asan,asan))
$(eval $(call SIM_RUN,sim-tsan,tsan))

sim-test: sim-exports

# The library exports what the real one does, and nothing else.
.PHONY: sim-exports
sim-exports: $(BUILD)/sim/libcuda.so.1
	diff <($(SIM_DIR)/driver/exports.sh) \
	  <(nm -D --defined-only $< | awk '{ print $$3 }' | LC_ALL=C sort)

# What a launch and an allocation cost their caller on the simulated driver.
.PHONY: sim-bench
sim-bench: $(SIM_OUT)/plain/launch_bench
	$<

.PHONY: sim-generate
sim-generate:
	$(SIM_DIR)/driver/generate.sh
