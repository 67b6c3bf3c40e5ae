// Whether the library can be loaded into a program at all. Judged from the file, without running
// it.

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// interpreterDepthMax is how many interpreters of interpreters the kernel follows.
const interpreterDepthMax = 5

// whyUnenforceable says why the library cannot be loaded into a program, so that no cap would
// hold it, or returns an empty string. What the kernel would refuse to run anyway is left to it.
func whyUnenforceable(path string) string {
	for range interpreterDepthMax {
		next, reason := inspectProgram(path)
		if next == "" {
			return reason
		}
		path = next
	}
	return ""
}

// inspectProgram looks at one file. Of a script it returns the interpreter, which is what runs.
func inspectProgram(path string) (interpreter, reason string) {
	file, err := os.Open(path)
	if err != nil {
		return "", path + " cannot be read, so weir cannot tell whether a library can be loaded into it"
	}
	defer file.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(file, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return "", ""
	}
	head = head[:n]
	if rest, isScript := bytes.CutPrefix(head, []byte("#!")); isScript {
		return interpreterOf(rest), ""
	}
	if reason := changesUser(path, file); reason != "" {
		return "", reason
	}
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return "", ""
	}
	return "", foreignOrStatic(path, file)
}

// interpreterOf reads a script's first line. For `env NAME` the program is NAME, by the PATH.
func interpreterOf(line []byte) string {
	text, _, _ := strings.Cut(string(line), "\n")
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" && len(words) == 2 {
		if path, err := exec.LookPath(words[1]); err == nil {
			return path
		}
	}
	return words[0]
}

// changesUser tells a program that runs with other rights than its caller's: the loader ignores
// LD_PRELOAD for it.
func changesUser(path string, file *os.File) string {
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	owner := info.Sys().(*syscall.Stat_t)
	mode := info.Mode()
	switch {
	case mode&os.ModeSetuid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Sprintf("%s is setuid, and the loader ignores LD_PRELOAD for such programs", path)
	case mode&os.ModeSetgid != 0 && mode&0o010 != 0 && int(owner.Gid) != os.Getegid():
		return fmt.Sprintf("%s is setgid, and the loader ignores LD_PRELOAD for such programs", path)
	}
	if size, err := unix.Fgetxattr(int(file.Fd()), "security.capability", nil); err == nil &&
		size > 0 && os.Geteuid() != 0 {
		return fmt.Sprintf("%s has file capabilities, and the loader ignores LD_PRELOAD for such "+
			"programs", path)
	}
	return ""
}

// foreignOrStatic tells a program that no loader, or only one of another architecture, starts.
func foreignOrStatic(path string, file *os.File) string {
	program, err := elf.NewFile(file)
	if err != nil {
		return ""
	}
	native := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if program.Class != elf.ELFCLASS64 || program.Machine != native {
		return fmt.Sprintf("%s is a program for %v, and the library is for %v", path,
			program.Machine, native)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return ""
		}
	}
	// The loader itself, run as a program, has no interpreter either, and honours LD_PRELOAD.
	if names, err := program.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		return ""
	}
	return fmt.Sprintf("%s is statically linked, so no library can be loaded into it", path)
}
