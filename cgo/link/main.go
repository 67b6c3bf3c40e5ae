// Link links libweir.so out of the C files of the package weir/cgo and those of its folder preload.
//
// It takes the files and flags from `go list` and the compiler from `go env`, so that the library is the
// same code, built by the same compiler, that the package's tests run; GOARCH and CC choose another
// machine. No library of the system is linked in: whatever the code imports it has to declare weak,
// anything else does not link. The output depends on nothing but the sources and the compiler.
//
// Usage:
//
//	go run ./cgo/link -o build/libweir.so
//
// With file names after the flags, relative to the package's folder, these are linked in place of the
// package's C files: tests put their own wrappers there.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// sources is the package whose files are linked.
const sources = "weir/cgo"

// Flags beside those of the package. The sources are compiled in their own folder by relative names,
// so that no path gets into the output.
var compileFlags = []string{
	"-I.", "-Wall", "-Wextra", "-Werror", "-fno-plt", "-ffunction-sections",
}

var linkFlags = []string{
	"-shared", "-nostdlib", "-Wl,-soname,libweir.so", "-Wl,--version-script=preload/weir.map",
	"-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-z,nodelete",
	"-Wl,-z,noseparate-code", "-Wl,--hash-style=both", "-Wl,--gc-sections", "-Wl,--build-id=sha1",
}

// Flags for one machine only: the usual ones would call functions of the compiler's run time.
var machineFlags = map[string][]string{
	"amd64": {"-fcf-protection=none"},
	"arm64": {"-mno-outline-atomics"},
}

// Flags for optimizing over all files: what a call costs is a few lines each of several books. Clang would
// need another linker for it, and the tests' stand-ins for some of the files have types of their own.
var wholeFlags = []string{"-flto=1", "-flto-partition=one"}

type listing struct {
	Dir       string
	CFiles    []string
	SFiles    []string
	CgoCFLAGS []string
}

type environment struct {
	CC     string
	GOARCH string
}

func main() {
	output := flag.String("o", "", "the `file` to write")
	flag.Parse()
	if *output == "" {
		fmt.Fprintln(os.Stderr, "usage: go run ./cgo/link -o FILE [SOURCE...]")
		os.Exit(2)
	}
	if err := link(*output, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "link: %v\n", err)
		os.Exit(1)
	}
}

func link(output string, instead []string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	var list listing
	if err := goJSON(&list, "list", "-json", sources); err != nil {
		return err
	}
	if len(list.CFiles) == 0 {
		return errors.New("cgo is off, or no C files were found: set CGO_ENABLED=1 and CC")
	}
	if len(instead) != 0 {
		list.CFiles = instead
	}
	var env environment
	if err := goJSON(&env, "env", "-json", "CC", "GOARCH"); err != nil {
		return err
	}
	preload, err := preloadFiles(list.Dir, env.GOARCH)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	return compile(list, env, preload, len(instead) == 0, output)
}

// compile runs the compiler once over all files, which are the package's own or not. The output takes the place of an older one at once: a
// file that processes have mapped must not be written over.
func compile(list listing, env environment, preload []string, own bool, output string) error {
	compiler := strings.Fields(env.CC)
	if len(compiler) == 0 {
		return errors.New("no C compiler: go env CC is empty")
	}
	temporary := output + ".new"
	var whole []string
	if own && isGCC(compiler[0]) {
		whole = wholeFlags
	}
	var args []string
	for _, part := range [][]string{
		compiler[1:], list.CgoCFLAGS, compileFlags, whole, machineFlags[env.GOARCH], linkFlags,
		{"-o", temporary}, list.CFiles, list.SFiles, preload,
	} {
		args = append(args, part...)
	}
	cc := exec.Command(compiler[0], args...)
	cc.Dir = list.Dir
	cc.Stdout, cc.Stderr = os.Stderr, os.Stderr
	if err := cc.Run(); err != nil {
		return fmt.Errorf("running %s: %w", compiler[0], err)
	}
	return os.Rename(temporary, output)
}

// isGCC reports whether a compiler is GNU's.
func isGCC(compiler string) bool {
	version, err := exec.Command(compiler, "--version").Output()
	return err == nil && bytes.Contains(version, []byte("Free Software Foundation"))
}

// preloadFiles returns the sources of the folder preload that are for the given machine.
func preloadFiles(dir, arch string) ([]string, error) {
	context := build.Default
	context.GOARCH = arch
	context.CgoEnabled = true
	entries, err := os.ReadDir(filepath.Join(dir, "preload"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if ext := filepath.Ext(name); ext != ".c" && ext != ".S" {
			continue
		}
		ours, err := context.MatchFile(filepath.Join(dir, "preload"), name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if ours {
			files = append(files, "preload/"+name)
		}
	}
	sort.Strings(files)
	return files, nil
}

// goJSON runs the go command and decodes what it prints.
func goJSON(out any, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running go %s: %w", strings.Join(args, " "), err)
	}
	if err := json.Unmarshal(printed, out); err != nil {
		return fmt.Errorf("reading output of go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
