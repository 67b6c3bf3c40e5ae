package main

// The GPU that the checks run on, and how much of it they may take.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"weir/agent/device"
	"weir/tests/e2e/node"
)

const mib = int64(1) << 20

// Caps are far below what is free, so that other programs on the card never want for memory because of a
// check: at most this (or some contexts, where those are large), and at most this part of what is free.
// Two programs with a context each have to fit, with room to speak of.
const (
	capMost          = 2048 * mib
	capMostContexts  = 6
	capFreePart      = 2
	capLeast         = 64 * mib
	capLeastContexts = 4
)

// card is what probe.c found: the driver's first GPU.
type card struct {
	freeBytes, totalBytes int64
	cuda                  string // version
	uuid                  string // without a prefix
	driverFile            string
	name                  string
}

// probe asks the driver, without weir.
func probe(n *node.Node, t *trial) card {
	out := n.For(t).Command(node.Build(t, "gpu/probe"))
	words := strings.SplitN(strings.TrimSpace(out.Stdout), " ", 6)
	if out.Code != 0 || len(words) != 6 {
		t.Fatalf("no GPU that can be used: %s%s", out.Stdout, out.Stderr)
	}
	numbers := make([]int64, 3)
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			t.Fatalf("reading what the probe says: %v", err)
		}
	}
	return card{
		freeBytes: numbers[0], totalBytes: numbers[1],
		cuda: fmt.Sprintf("%d.%d", numbers[2]/1000, numbers[2]%1000/10),
		uuid: words[3], driverFile: words[4], name: words[5],
	}
}

// capFor is the cap that the checks use on it, a multiple of 2 MiB, where a context takes about so much.
func (c card) capFor(t *trial, contextBytes int64) int64 {
	most := max(capMost, capMostContexts*contextBytes)
	bytes := min(most, c.freeBytes/capFreePart) / (2 * mib) * (2 * mib)
	if bytes < max(capLeast, capLeastContexts*contextBytes) {
		t.Fatalf("only %s of the GPU are free, a context takes %s: too little to check with", size(c.freeBytes),
			size(contextBytes))
	}
	return bytes
}

// openNVML opens NVML in this process, of the simulated machine or of the real one.
func openNVML(n *node.Node, simulated bool) (*device.Devices, error) {
	if !simulated {
		return device.Open("")
	}
	if err := os.Setenv("WEIR_SIM", n.SimDir); err != nil {
		return nil, err
	}
	return device.Open(filepath.Join(buildFolder(), "sim", "libnvidia-ml.so.1"))
}

// buildFolder is where `make` has put things.
func buildFolder() string {
	if dir := os.Getenv("WEIR_TEST_BUILD"); dir != "" {
		return dir
	}
	return "build"
}

// nvmlUUID is the name under which NVML lists the card, or the MIG device.
func nvmlUUID(devices *device.Devices, uuid string) string {
	for _, gpu := range devices.GPUs() {
		if strings.HasSuffix(strings.ToLower(gpu.UUID), uuid) {
			return gpu.UUID
		}
	}
	return ""
}

// have says whether a program is there.
func have(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
