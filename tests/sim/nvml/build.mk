# The simulated NVML: build/sim/libnvidia-ml.so.1, its tests, and the same under the sanitisers.

NVML_DIR := tests/sim/nvml
NVML_OUT := $(BUILD)/sim/nvml
NVML_CFLAGS := -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread
NVML_LDFLAGS := -pthread -Wl,-z,defs -Wl,-z,now -Wl,-z,relro

NVML_MACHINE_SOURCES := $(wildcard tests/sim/*.c)
NVML_SOURCES := $(wildcard $(NVML_DIR)/*.c) $(NVML_MACHINE_SOURCES)
NVML_HEADERS := $(wildcard $(NVML_DIR)/*.h $(NVML_DIR)/*.def tests/sim/*.h)
NVML_TEST_DIR := $(NVML_DIR)/test
NVML_TESTS := nvml_test limit_test mig_test mig_kill_test topology_test
NVML_TEST_HEADERS := $(NVML_HEADERS) $(wildcard $(NVML_TEST_DIR)/*.h)

BUILD_TARGETS += $(BUILD)/sim/libnvidia-ml.so.1 $(NVML_OUT)/client
TEST_TARGETS += nvml-test
SANITIZE_TARGETS += nvml-sanitize

$(NVML_OUT):
	mkdir -p $@

$(BUILD)/sim/libnvidia-ml.so.1: $(NVML_SOURCES) $(NVML_HEADERS) $(NVML_DIR)/build.mk | $(NVML_OUT)
	$(CC) $(NVML_CFLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 $(NVML_LDFLAGS) -o $@ $(NVML_SOURCES)

# Holds simulated memory while a test in another language looks.
$(NVML_OUT)/client: $(NVML_TEST_DIR)/client_main.c $(NVML_TEST_DIR)/client.c \
  $(NVML_MACHINE_SOURCES) $(NVML_TEST_HEADERS) $(NVML_DIR)/build.mk | $(NVML_OUT)
	$(CC) $(NVML_CFLAGS) $(NVML_LDFLAGS) -o $@ $(filter %.c,$^)

# The sources of NVML and of the machine, once for each kind of build, and the tests with them.
NVML_EXTRA_plain :=
NVML_EXTRA_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
  -fno-omit-frame-pointer
NVML_EXTRA_tsan := -O1 -fsanitize=thread -Wno-tsan

define NVML_KIND
NVML_OBJECTS_$(1) := $$(NVML_SOURCES:%.c=$$(NVML_OUT)/$(1)/%.o)

$$(NVML_OUT)/$(1)/%.o: %.c $$(NVML_TEST_HEADERS) $$(NVML_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(NVML_CFLAGS) $$(NVML_EXTRA_$(1)) -c -o $$@ $$<

$$(NVML_OUT)/$(1)/nvml_test $$(NVML_OUT)/$(1)/limit_test: \
  $$(NVML_OUT)/$(1)/$$(NVML_TEST_DIR)/client.o
$$(NVML_OUT)/$(1)/mig_test $$(NVML_OUT)/$(1)/mig_kill_test: \
  $$(NVML_OUT)/$(1)/$$(NVML_TEST_DIR)/mig_machine.o
$$(NVML_TESTS:%=$$(NVML_OUT)/$(1)/%): $$(NVML_OUT)/$(1)/%: \
  $$(NVML_OUT)/$(1)/$$(NVML_TEST_DIR)/%.o $$(NVML_OBJECTS_$(1))
	$$(CC) $$(NVML_EXTRA_$(1)) -pthread -o $$@ $$^
endef
$(foreach kind,plain asan tsan,$(eval $(call NVML_KIND,$(kind))))

.PHONY: nvml-test
nvml-test: $(NVML_TESTS:%=$(NVML_OUT)/plain/%) $(BUILD)/sim/libnvidia-ml.so.1
	for test in $(NVML_TESTS); do $(NVML_OUT)/plain/$$test || exit 1; done
	$(NVML_TEST_DIR)/exports.sh $(BUILD)/sim/libnvidia-ml.so.1 $(NVML_DIR)/functions.def

# Tests fork while they have threads, which TSan allows only when told so. Kills are fewer there.
.PHONY: nvml-sanitize
nvml-sanitize: $(foreach kind,asan tsan,$(NVML_TESTS:%=$(NVML_OUT)/$(kind)/%))
	for test in $(NVML_TESTS); do KILLS=50 $(NVML_OUT)/asan/$$test || exit 1; done
	export TSAN_OPTIONS="die_after_fork=0 suppressions=$(NVML_TEST_DIR)/tsan.supp" KILLS=50; \
	  for test in $(NVML_TESTS); do $(NVML_OUT)/tsan/$$test || exit 1; done
