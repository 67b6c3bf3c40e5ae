package gatetest

// What the gate is made of: instructions, and what a library with it asks of a loader.

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// A launch with the gate open: no locked instruction, no fence, no system call, no clock, and no call but the
// driver's and those that are not taken.
func TestOpenGateNeedsNothing(t *testing.T) {
	if machine() != "x86_64" {
		t.Skip("reads instructions of x86-64")
	}
	if _, err := exec.LookPath("objdump"); err != nil {
		t.Skip(err)
	}
	object := filepath.Join(t.TempDir(), "probe.o")
	if err := compile("gcc", object, "-fPIC", "-fvisibility=hidden", "-c", "preload/probe.c"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("objdump", "-dr", "--no-show-raw-insn", object).CombinedOutput()
	if err != nil {
		t.Fatalf("objdump: %v\n%s", err, out)
	}
	// That is how assemblers write a pause of two bytes.
	out = regexp.MustCompile(`xchg +%ax,%ax`).ReplaceAll(out, nil)
	if found := regexp.MustCompile(`\b(lock|xchg|cmpxchg|[mls]fence|syscall|rdtsc)\w*\b.*`).Find(out); found != nil {
		t.Errorf("a launch does %q", found)
	}
	for _, call := range regexp.MustCompile(`call +[^* ].*\n.*`).FindAllString(string(out), -1) {
		if !regexp.MustCompile(`weir_gate_(enter|leave)_slow`).MatchString(call) {
			t.Errorf("a launch does %q", call)
		}
	}
}

// The thread-local word in a preloaded library that is linked against nothing, in programs of two C libraries.
func TestGateIsPreloaded(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "gate.so")
	if err := compile("gcc", library, "-fPIC", "-fvisibility=hidden", "-shared", "-nostdlib", "-Wl,-z,defs", "-Wl,-z,now",
		"preload/preload.c", "../gate.c", "../revoke.c"); err != nil {
		t.Fatal(err)
	}
	checkLibrary(t, library)
	for _, compiler := range []string{"gcc", "musl-gcc"} {
		t.Run(compiler, func(t *testing.T) {
			if _, err := exec.LookPath(compiler); err != nil {
				t.Skip(err)
			}
			host := filepath.Join(dir, compiler)
			if err := compile(compiler, host, "-pthread", "preload/host.c"); err != nil {
				t.Fatal(err)
			}
			run := exec.Command(host)
			run.Env = append(os.Environ(), "LD_PRELOAD="+library)
			if out, err := run.CombinedOutput(); err != nil || string(out) != "fine\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func checkLibrary(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if symbols, err := file.ImportedSymbols(); err != nil || len(symbols) != 0 {
		t.Errorf("it imports %v (%v), want nothing", symbols, err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_TLS && program.Memsz != 8 {
			t.Errorf("it has %d bytes of thread-local storage, want one word", program.Memsz)
		}
	}
}
