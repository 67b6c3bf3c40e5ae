package e2e

// Containers that runc starts through weir-runtime: what is left of many.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// Containers that come and go, several at a time, leave no directory, mount, session or charge.
func TestManyContainersLeaveNothing(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	count, atOnce := 40, 5
	if os.Getenv("LONG") != "" {
		count = 400
	}
	next := make(chan int)
	var runs sync.WaitGroup
	bundles := make([]*node.Bundle, count)
	for i := range bundles {
		bundles[i] = n.Bundle(fmt.Sprintf("c%d", i), map[string]string{"weir/memory": "32MiB"}, func(s node.Spec) {
			s["process"].(node.Spec)["args"] = []any{"/bin/sh", "-c", "test -S /run/weir/agent.sock"}
		})
	}
	for range atOnce {
		runs.Go(func() {
			for i := range next {
				p := bundles[i].Start()
				if code, _ := p.Wait(time.Minute); code != 0 {
					t.Errorf("container %d: code %d: %s", i, code, p.Stderr())
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	runs.Wait()
	n.Eventually(func() string {
		left, err := os.ReadDir(filepath.Join(n.RunDir, "c"))
		if containers := n.Containers(); err != nil || len(left) > 0 || len(containers) > 0 {
			return fmt.Sprintf("left are %v, %v, and %d containers", left, err, len(containers))
		}
		return ""
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(n.Dir)) {
		t.Errorf("a mount is left, or cannot be looked for: %v", err)
	}
}
