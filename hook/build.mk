# What container runtimes run: weir-hook and weir-runtime. They are linked statically, without C.

HOOK_SOURCES := $(shell find hook oci agent/control/ociapi -name '*.go' -not -name '*_test.go')

BUILD_TARGETS += $(BUILD)/weir-hook $(BUILD)/weir-runtime

$(BUILD)/weir-hook $(BUILD)/weir-runtime: $(BUILD)/%: $(HOOK_SOURCES) go.mod go.sum
	mkdir -p $(@D)
	CGO_ENABLED=0 $(GO_BUILD) -o $@ ./hook/$*
