// Package report brings an error of weir's to where the user of a container runtime sees it: the runtime's caller shows
// the last error in the log file that it gave the runtime, or what that wrote to stderr.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/hook/runccmd"
)

// Error writes an error to stderr, and to the log that the runtime's command line names.
func Error(stderr io.Writer, command runccmd.Command, err error) {
	message := "weir: " + err.Error()
	fmt.Fprintln(stderr, message)
	if command.Log == "" {
		return
	}
	f, err := os.OpenFile(command.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return // it has been said on stderr
	}
	defer f.Close()
	f.WriteString(logLine(command.LogJSON, message, time.Now()))
}

// OfHook is Error for a hook. A runtime that gives hooks no stderr (crun) has its own written to, and its log. It is
// found by /proc, which may be another pid namespace's than this process's.
func OfHook(err error) {
	if !isNull(os.Stderr) {
		Error(os.Stderr, runccmd.Command{}, err)
		return
	}
	runtime, words := parent()
	if runtime == "" {
		return
	}
	stderr, openErr := os.OpenFile(runtime+"/fd/2", os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if openErr != nil {
		return // nobody is left to be told
	}
	defer stderr.Close()
	Error(stderr, runccmd.Parse(words[1:]), err)
}

// parent is the directory in /proc of the process that has started this one, and its command line.
func parent() (dir string, words []string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", nil
	}
	for line := range strings.Lines(string(status)) {
		if pid, found := strings.CutPrefix(line, "PPid:"); found {
			dir = "/proc/" + strings.TrimSpace(pid)
		}
	}
	text, err := os.ReadFile(dir + "/cmdline")
	if err != nil || len(text) == 0 {
		return "", nil
	}
	return dir, strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// isNull tells whether what is written to a file is thrown away.
func isNull(f *os.File) bool {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return err != nil || st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// logLine is a line as runc writes it.
func logLine(asJSON bool, message string, at time.Time) string {
	stamp := at.Format(time.RFC3339)
	if !asJSON {
		return fmt.Sprintf("time=%q level=error msg=%q\n", stamp, message)
	}
	line, err := json.Marshal(struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
		Time  string `json:"time"`
	}{"error", message, stamp})
	if err != nil {
		return ""
	}
	return string(line) + "\n"
}
