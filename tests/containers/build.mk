# A containerd of today with its runc, shim and ctr, and crictl, in build/containers/: what the tests of
# containers run beside Debian's containerd. They are a module of their own, whose go.mod names the
# versions; nothing of weir is built with it.

CONTAINERS_DIR := tests/containers
CONTAINERS_OUT := $(BUILD)/containers
CONTAINERD := github.com/containerd/containerd/v2/cmd
# Without what no test uses: file systems that need C libraries, and tracing.
CONTAINERS_TAGS := no_btrfs,no_devmapper,no_zfs,no_tracing,netgo,osusergo
# Nothing is inlined: a quarter less to compile, and their speed is not what is tested.
CONTAINERS_GO := $(GO_LAZY) $(GO) -C $(CONTAINERS_DIR) build -trimpath -gcflags='all=-dwarf=false -l' -buildvcs=false \
  -tags $(CONTAINERS_TAGS) -ldflags '-s -w' -o $(abspath $(CONTAINERS_OUT))/
CONTAINERS_SOURCES := $(addprefix $(CONTAINERS_DIR)/,go.mod go.sum)

# Not part of `make build`: only whole-system tests and benchmarks of containers need them.
CONTAINERS_TARGETS := $(addprefix $(CONTAINERS_OUT)/,containerd runc crictl)

e2e: $(CONTAINERS_TARGETS)

# One call, so that they share what they have in common.
$(CONTAINERS_OUT)/containerd: $(CONTAINERS_SOURCES)
	CGO_ENABLED=0 $(CONTAINERS_GO) $(CONTAINERD)/containerd $(CONTAINERD)/containerd-shim-runc-v2 \
	  $(CONTAINERD)/ctr
	touch $@

$(CONTAINERS_OUT)/crictl: $(CONTAINERS_SOURCES)
	CGO_ENABLED=0 $(CONTAINERS_GO) sigs.k8s.io/cri-tools/cmd/crictl
	touch $@

# runc enters namespaces in C, before Go's runtime is there.
$(CONTAINERS_OUT)/runc: $(CONTAINERS_SOURCES)
	$(CONTAINERS_GO) github.com/opencontainers/runc
	touch $@
