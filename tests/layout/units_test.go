package layout

// systemd's own word on the units that are installed, and what the agent's must keep.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// programForm is how a unit names a program of weir's, before the place is known where that is installed.
var programForm = regexp.MustCompile(`@BIN@/([a-z-]+)`)

func TestUnits(t *testing.T) {
	units := filesBelow(t, "packaging/systemd")
	if len(units) < 2 {
		t.Fatalf("the units are %q", units)
	}
	dir := t.TempDir()
	var installed []string
	for _, name := range units {
		text := string(read(t, name))
		programs := programForm.FindAllStringSubmatch(text, -1)
		if len(programs) == 0 {
			t.Errorf("%s starts no program of weir's", name)
		}
		for _, program := range programs {
			if err := os.WriteFile(filepath.Join(dir, program[1]), []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "@BIN@", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
		installed = append(installed, path)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, installed...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAgentUnitKeeps what lets containers outlive the agent, and leaves alone what NVML needs.
func TestAgentUnitKeeps(t *testing.T) {
	text := string(read(t, "packaging/systemd/weir-agent.service"))
	for _, line := range []string{"Type=notify", "RuntimeDirectory=weir", "RuntimeDirectoryPreserve=yes", "Restart=always"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("it lacks %s", line)
		}
	}
	for _, setting := range []string{"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectProc", "ProcSubset",
		"PrivateUsers", "PrivatePIDs", "PrivateTmp", "ProtectKernelModules", "ProtectKernelTunables", "ProtectControlGroups",
		"MemoryDenyWriteExecute", "CapabilityBoundingSet", "RootDirectory", "User"} {
		if strings.Contains(text, "\n"+setting+"=") {
			t.Errorf("it has %s=, which the agent or the driver cannot live with", setting)
		}
	}
}

// filesBelow are the tree's files in a folder.
func filesBelow(t *testing.T, folder string) (found []string) {
	for _, name := range files(t) {
		if strings.HasPrefix(name, folder+"/") {
			found = append(found, name)
		}
	}
	return found
}
