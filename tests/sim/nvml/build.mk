# The simulated NVML: build/sim/libnvidia-ml.so.1, its tests, and the same under the sanitisers.

NVML_DIR := tests/sim/nvml
NVML_OUT := $(BUILD)/sim/nvml
NVML_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread
NVML_LDFLAGS := -pthread -Wl,-z,defs -Wl,-z,now -Wl,-z,relro

NVML_MACHINE_SOURCES := $(wildcard tests/sim/*.c)
NVML_SOURCES := $(wildcard $(NVML_DIR)/*.c) $(NVML_MACHINE_SOURCES)
NVML_HEADERS := $(wildcard $(NVML_DIR)/*.h $(NVML_DIR)/*.def tests/sim/*.h)
NVML_TEST_DIR := $(NVML_DIR)/test
NVML_TEST_SOURCES := $(NVML_TEST_DIR)/nvml_test.c $(NVML_TEST_DIR)/client.c $(NVML_SOURCES)
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

$(NVML_OUT)/nvml_test: NVML_EXTRA :=
$(NVML_OUT)/nvml_test_asan: NVML_EXTRA := -O1 -fsanitize=address,undefined \
  -fno-sanitize-recover=all -fno-omit-frame-pointer
$(NVML_OUT)/nvml_test_tsan: NVML_EXTRA := -O1 -fsanitize=thread -Wno-tsan
$(NVML_OUT)/nvml_test $(NVML_OUT)/nvml_test_asan $(NVML_OUT)/nvml_test_tsan: \
  $(NVML_TEST_SOURCES) $(NVML_TEST_HEADERS) $(NVML_DIR)/build.mk | $(NVML_OUT)
	$(CC) $(NVML_CFLAGS) $(NVML_EXTRA) -pthread -o $@ $(NVML_TEST_SOURCES)

.PHONY: nvml-test
nvml-test: $(NVML_OUT)/nvml_test $(BUILD)/sim/libnvidia-ml.so.1
	$(NVML_OUT)/nvml_test
	$(NVML_TEST_DIR)/exports.sh $(BUILD)/sim/libnvidia-ml.so.1 $(NVML_DIR)/functions.def

# The test forks while it has threads, which TSan allows only when told so.
.PHONY: nvml-sanitize
nvml-sanitize: $(NVML_OUT)/nvml_test_asan $(NVML_OUT)/nvml_test_tsan
	$(NVML_OUT)/nvml_test_asan
	TSAN_OPTIONS="die_after_fork=0 suppressions=$(NVML_TEST_DIR)/tsan.supp" \
	  $(NVML_OUT)/nvml_test_tsan
