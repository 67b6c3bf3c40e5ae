// Tests of how the agent keeps its helper for containerd, with a script in the helper's place.

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/agent/control/controltest"
)

func TestHelperForContainerd(t *testing.T) {
	dir := t.TempDir()
	h := helper{filepath.Join(dir, "helper"), filepath.Join(dir, "control.sock"), filepath.Join(dir, "c.sock")}
	// The third one stays until its input ends.
	script := "#!/bin/sh\necho \"$@\" >>" + dir + "/started\n" +
		"[ $(wc -l <" + dir + "/started) -lt 3 ] && exit 3\ncat\necho end >>" + dir + "/started\n"
	if err := os.WriteFile(h.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	node, done := &controltest.Node{}, make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(done)
		h.keep(ctx, node, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	time.Sleep(10 * time.Millisecond) // nothing is started, as nobody listens there
	if _, err := os.Stat(dir + "/started"); err == nil {
		t.Error("it was started though there is no containerd")
	}
	if err := os.WriteFile(h.containerd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	line := "--control " + h.control + " --containerd " + h.containerd + "\n"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(dir + "/started")
		if string(text) == strings.Repeat(line, 3) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("started are %q", text)
		}
	}
	cancel()
	<-done
	node.Lock()
	defer node.Unlock()
	if len(node.Listed) != 2 || node.Listed[0].Lost != "its helper has ended" {
		t.Errorf("the agent was told %+v", node.Listed)
	}
	if got := strings.Count(log.String(), "exit status 3"); got != 2 {
		t.Errorf("logged is %s", log.String())
	}
}
