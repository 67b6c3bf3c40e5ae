package main

// Where an error is seen: container runtimes show their users the last error in the log file that they
// gave runc, and what it wrote to stderr only if there is none.

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weir/hook/runccmd"
)

func report(command runccmd.Command, err error) {
	message := "weir: " + err.Error()
	fmt.Fprintln(os.Stderr, message)
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
