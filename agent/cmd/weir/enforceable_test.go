// Tests of which programs can be enforced.

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes an executable ELF file without an interpreter.
func program(t *testing.T, class elf.Class, machine elf.Machine) string {
	t.Helper()
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(class)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var image bytes.Buffer
	if err := binary.Write(&image, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	return file(t, image.String(), 0o755)
}

func file(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhyUnenforceable(t *testing.T) {
	static := program(t, elf.ELFCLASS64, elf.EM_X86_64)
	if hostIsARM() {
		static = program(t, elf.ELFCLASS64, elf.EM_AARCH64)
	}
	foreign := program(t, elf.ELFCLASS64, elf.EM_PPC64)
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.WriteFile(loop, []byte("#!"+loop+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"/bin/sh":                                   "",
		"/bin/true":                                 "",
		static:                                      "statically linked",
		foreign:                                     "is a program for EM_PPC64",
		file(t, "#!/bin/sh\nexit 0\n", 0o755):       "",
		file(t, "#! "+static+" -x\n", 0o755):        "statically linked",
		file(t, "#!/usr/bin/env sh\n", 0o755):       "",
		file(t, "#!", 0o755):                        "",
		file(t, "", 0o755):                          "",
		file(t, "echo no shebang\n", 0o755):         "",
		file(t, "\x7fELF but no more of it", 0o755): "",
		loop: "",
		filepath.Join(t.TempDir(), "nothing is here"): "cannot be read",
	}
	for path, want := range tests {
		got := whyUnenforceable(path)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func hostIsARM() bool {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer self.Close()
	return self.Machine == elf.EM_AARCH64
}

// The program that env looks up is what counts.
func TestWhyUnenforceableLooksBehindEnv(t *testing.T) {
	static := program(t, elf.ELFCLASS64, elf.EM_X86_64)
	t.Setenv("PATH", filepath.Dir(static))
	script := file(t, "#!/usr/bin/env program\n", 0o755)
	if got := whyUnenforceable(script); got == "" {
		t.Error("a static program behind env was taken")
	}
}

// Whoever runs the test, a program that would run as somebody else is found.
func TestWhyUnenforceableSetuid(t *testing.T) {
	path := "/bin/su" // setuid root, where it exists
	if os.Geteuid() == 0 {
		text, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		path = file(t, string(text), 0o755)
		if got := whyUnenforceable(path); got != "" {
			t.Fatalf("before: %q", got)
		}
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
	} else if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Skip("no setuid program at hand")
	}
	got := whyUnenforceable(path)
	if !strings.Contains(got, "setuid") && !strings.Contains(got, "read") {
		t.Errorf("%s: %q", path, got)
	}
}
