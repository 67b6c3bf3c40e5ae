package session

// Tests of libraries and drivers that do not go with the agent.

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// misfits are HELLOs with which no session is made, and what an operator is told of each.
var misfits = map[string]struct {
	oldest, newest uint16
	driver         uint32
	words          []string
}{
	"an older library": {0, 0, 12020, []string{"speaks 0 to 0", "start the program again"}},
	"a newer library":  {abi.Version + 1, abi.Version + 3, 12020, []string{"bring the agent to"}},
	"an old driver": {abi.Oldest, abi.Version, abi.DriverOldest - 10,
		[]string{"CUDA version 11.3 is older than 11.4", "update the driver"}},
}

func misfit(oldest, newest uint16, driver uint32) []byte {
	return sessiontest.Packet(abi.MsgHello, 1, &abi.Hello{
		Magic: abi.HelloMagic, Abi_oldest: oldest, Abi_newest: newest, Driver_version: driver,
	})
}

// TestIncompatible: each is told in one event with versions and remedy, and told what to do.
func TestIncompatible(t *testing.T) {
	for name, m := range misfits {
		for _, pass := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, passed %v", name, pass), func(t *testing.T) {
				b := start(t, func(o *Options) { o.PassIncompatible = pass })
				grant := b.run(mib)
				for range 3 { // it tries again
					conn, err := sessiontest.Dial(grant.Socket)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if err := conn.Send(misfit(m.oldest, m.newest, m.driver)); err != nil {
						t.Fatal(err)
					}
					var closed *sessiontest.Closed
					if err := lastWords(conn); !errors.As(err, &closed) || closed.Reason != abi.CloseVersion ||
						(closed.Flags == abi.ClosePass) != pass {
						t.Errorf("told %+v (%v)", closed, err)
					}
				}
				becomes := unfitRefused
				if pass {
					becomes = unfitPassed
				}
				b.wantEvent("incompatible", append(m.words, becomes)...)
				b.eventually("all three are counted", func() bool { return b.count("incompatible") == 3 })
				if got := b.container(grant.ID); got.Enforced == pass {
					t.Errorf("enforced: %v, %q", got.Enforced, got.Reason)
				} else if pass && !strings.Contains(got.Reason, unfitPassed) {
					t.Errorf("shown as %q", got.Reason)
				}
			})
		}
	}
}

// count is how often an event of a type has happened.
func (b *bench) count(kind string) (sum int64) {
	b.t.Helper()
	events, err := b.Events(b.t.Context(), 0, false)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == kind {
			sum = max(sum, e.Count)
		}
	}
	return sum
}

// TestServedDrivers: the oldest driver that is served, and none, which a process has that only asks
// NVML.
func TestServedDrivers(t *testing.T) {
	b := start(t)
	grant := b.run(mib)
	for _, driver := range []uint32{abi.DriverOldest, 0, 13000} {
		conn, err := sessiontest.Dial(grant.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(misfit(abi.Oldest, abi.Version, driver)); err != nil {
			t.Fatal(err)
		}
		if packet, _, err := conn.Receive(); err != nil || sessiontest.Type(packet) != abi.MsgWelcome {
			t.Errorf("driver %d: message %d, %v", driver, sessiontest.Type(packet), err)
		}
		conn.Close()
	}
}

// TestBadPage: a library that cannot use the page that it was given says so.
func TestBadPage(t *testing.T) {
	for note, words := range map[string]string{
		fmt.Sprintf("%d %d 0", abi.NoteBadPage, abi.BadPageFile):     "it is not a file of",
		fmt.Sprintf("%d %d 0", abi.NoteBadPage, abi.BadPageSeals):    "its seals are missing",
		fmt.Sprintf("%d %d 7", abi.NoteBadPage, abi.BadPageContents): "(it says 7)",
	} {
		for _, pass := range []bool{false, true} {
			b := start(t, func(o *Options) { o.PassIncompatible = pass })
			grant := b.run(mib)
			p := b.tenant(grant)
			p.Must("note %s", note)
			b.eventually("the event is there", func() bool { return b.hasEvent("incompatible") })
			b.wantEvent("incompatible", words, "sessiontest", "(test)", "to one version")
			p.Kill()
			b.eventually("a dead one is not shown", func() bool { return b.container(grant.ID).Enforced })
			b.end()
		}
	}
}

// TestUnsupportedRun: a cap on an agent without GPUs would hold for nothing.
func TestUnsupportedRun(t *testing.T) {
	b := start(t, func(o *Options) { o.Devices = newDevices(0) })
	limit := int64(mib)
	uid := uint32(os.Geteuid())
	request := control.RunRequest{Caps: control.Caps{MemoryBytes: &limit}}
	_, err := b.StartRun(t.Context(), os.Getpid(), uid, request)
	if !errors.Is(err, control.ErrUnsupported) || !strings.Contains(err.Error(), "restart it") {
		t.Errorf("got %v", err)
	}
	if _, err := b.StartRun(t.Context(), os.Getpid(), uid, control.RunRequest{}); err != nil {
		t.Errorf("without a cap: %v", err)
	}
}
