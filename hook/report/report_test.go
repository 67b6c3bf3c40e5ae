package report

// Tests of where an error is written. The test's own binary is the runtime, and the hook that it starts.

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const asRuntime, asHook = "WEIR_TEST_AS_RUNTIME", "WEIR_TEST_AS_HOOK"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asHook) != "":
		OfHook(errors.New("container web: no"))
	case os.Getenv(asRuntime) != "":
		hook := exec.Command(os.Args[0])
		hook.Env = []string{asHook + "=1"}
		if os.Getenv(asRuntime) == "runc" {
			hook.Stderr = os.Stderr
		}
		if err := hook.Run(); err != nil {
			panic(err)
		}
	default:
		os.Exit(m.Run())
	}
}

// A runtime that throws away what hooks write has it on its own stderr and in its log all the same; one that does not
// has it once.
func TestOfHook(t *testing.T) {
	for runtime, logged := range map[string]string{"crun": `"msg":"weir: container web: no"`, "runc": ""} {
		log := filepath.Join(t.TempDir(), "log")
		command := exec.Command(os.Args[0], "--log-format=json", "--log", log, "create", "--bundle", "/b", "web")
		command.Env = []string{asRuntime + "=" + runtime}
		var stderr strings.Builder
		command.Stderr = &stderr
		if err := command.Run(); err != nil {
			t.Fatal(err)
		}
		if stderr.String() != "weir: container web: no\n" {
			t.Errorf("%s: stderr has %q", runtime, stderr.String())
		}
		text, err := os.ReadFile(log)
		if (logged != "") != (err == nil) || !strings.Contains(string(text), logged) {
			t.Errorf("%s: the log has %q, %v", runtime, text, err)
		}
	}
}

func TestLogLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := logLine(false, `a "b"`, at); got != `time="2026-01-02T03:04:05Z" level=error msg="a \"b\""`+"\n" {
		t.Errorf("%q", got)
	}
	if got := logLine(true, "a\n<b>", at); !json.Valid([]byte(got)) || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}
