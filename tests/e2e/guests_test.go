package e2e

// Programs with habits of their own: other preloaded libraries beside ours, every way to the driver,
// children of every sort, and handlers of their own.

import (
	"fmt"
	"os"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// guest runs one under a cap and checks that its memory, of four kinds, is counted once while it holds
// it and not at all afterwards. It looks by itself whether what is its own was left alone.
func guest(t *testing.T, options node.RunOptions, command ...string) {
	t.Helper()
	n := node.Start(t, node.Options{})
	options.Name, options.Memory = "guest", "256MiB"
	p := n.Run(options, command[0], command[1:]...)
	var holds int64
	line := p.Line()
	if _, err := fmt.Sscanf(line, "holds %d", &holds); err != nil {
		t.Fatalf("it says %q\n%s", line, p.Stderr())
	}
	if used, _ := n.Use("guest"); used != holds {
		t.Errorf("it holds %d bytes and is charged %d", holds, used)
	}
	p.Send("go on")
	if line := p.Line(); line != "left" {
		t.Fatalf("it says %q\n%s", line, p.Stderr())
	}
	if used, _ := n.Use("guest"); used != 0 {
		t.Errorf("it holds nothing and is charged %d", used)
	}
	p.Send("end")
	if code, _ := p.Wait(time.Minute); code != 0 || p.Stderr() != "" {
		t.Errorf("exit %d, %q", code, p.Stderr())
	}
}

func TestGuests(t *testing.T) {
	program := node.Build(t, "e2e/guest")
	for _, one := range []struct{ route, place string }{
		{"dlsym", "here"}, {"dlvsym", "here"}, {"deepbind", "here"}, {"procaddress", "here"},
		{"dlsym", "fork"}, {"dlsym", "vfork"}, {"deepbind", "clone"}, {"procaddress", "clone"}, {"dlsym", "exec"},
		{"dlsym", "handlers"}, {"procaddress", "handlers"},
	} {
		t.Run(one.route+"/"+one.place, func(t *testing.T) {
			guest(t, node.RunOptions{}, program, one.route, one.place)
		})
	}
}

// Before and behind ours in the list of what is preloaded.
func TestGuestsBesideOtherLibraries(t *testing.T) {
	program := node.Build(t, "e2e/guest")
	for name, library := range map[string]string{
		"jemalloc": "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
		"faketime": "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
	} {
		if _, err := os.Stat(library); err != nil {
			t.Logf("not tried beside %s: %v", name, err)
			continue
		}
		options := node.RunOptions{Env: []string{"FAKETIME=-1d", "OTHER=" + library}}
		for order, list := range map[string]string{"before": "$OTHER:$LD_PRELOAD", "behind": "$LD_PRELOAD:$OTHER"} {
			for _, place := range []string{"here", "fork"} {
				t.Run(name+"/"+order+"/"+place, func(t *testing.T) {
					guest(t, options, "/bin/sh", "-c", "LD_PRELOAD="+list+` exec "$0" dlsym "$1"`, program, place)
				})
			}
		}
	}
}
