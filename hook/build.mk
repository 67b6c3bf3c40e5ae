# What container runtimes run: weir-hook and weir-runtime. They are linked statically, without a libc.

HOOK_SOURCES := $(shell find hook oci agent/control/ociapi -name '*.go' -not -name '*_test.go')
FRONT_CFLAGS := -std=gnu11 -O1 -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fno-pie \
  -fno-asynchronous-unwind-tables -nostdlib -static -s -Wl,--build-id=none

BUILD_TARGETS += $(BUILD)/weir-hook $(BUILD)/weir-runtime $(BUILD)/weir-runtime-create

# Copied, as an installation does: the kernel maps a file that was written in order in larger pieces than
# what the linker leaves, which saves 0.3 ms of each start.
$(BUILD)/weir-hook: HOOK_PACKAGE := weir-hook
$(BUILD)/weir-runtime-create: HOOK_PACKAGE := weir-runtime
$(BUILD)/weir-hook $(BUILD)/weir-runtime-create: $(HOOK_SOURCES) go.mod go.sum hook/build.mk
	mkdir -p $(@D)
	CGO_ENABLED=0 $(GO_BUILD) -o $@.linked ./hook/$(HOOK_PACKAGE)
	cp $@.linked $@.new
	mv $@.new $@
	rm $@.linked

$(BUILD)/weir-runtime: hook/front/front.c cgo/sys.h hook/build.mk
	mkdir -p $(@D)
	$(CC) $(FRONT_CFLAGS) -o $@ $<
