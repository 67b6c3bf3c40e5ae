# The agent's helper for containerd, a module of its own. It is linked without C, and its dependencies are
# compiled with the flags of all of weir's programs, so builds share them.

CONTAINERD_DIR := agent/cmd/weir-containerd
CONTAINERD_SOURCES := $(shell find $(CONTAINERD_DIR) agent/containerd -name '*.go' -not -name '*_test.go')

BUILD_TARGETS += $(BUILD)/weir-containerd

$(BUILD)/weir-containerd: $(CONTAINERD_SOURCES) $(HOOK_SOURCES) $(CONTAINERD_DIR)/go.mod $(CONTAINERD_DIR)/go.sum
	mkdir -p $(@D)
	CGO_ENABLED=0 $(subst $(GO) build,$(GO) build -C $(CONTAINERD_DIR),$(GO_BUILD)) -o $(abspath $@) .
