// Tests of the requests of container runtimes' helpers, by their own small client.

package control_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/oci"
)

func TestHelpersRoundTrips(t *testing.T) {
	node := sample()
	node.Prepared = ociapi.Prepared{Reason: "r", Grant: &oci.Grant{ID: "0123", Devices: []oci.Device{{Path: "/dev/x", Major: 1}}}}
	client := ociapi.Client{Socket: serve(t, node)}
	asked := ociapi.Container{ID: "web", Bundle: "/b", PID: 5, Annotations: map[string]string{"weir/memory": "1GiB"}, Preload: "/a.so\n"}
	got, err := client.Prepare(asked)
	want := node.Prepared
	want.SchemaVersion = control.SchemaVersion
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	node.Lock()
	if diff := cmp.Diff([]ociapi.Container{asked}, node.Asked); diff != "" {
		t.Error(diff)
	}
	node.Unlock()
	event := ociapi.Event{GrantID: "0123", Bundle: "/b", PID: 5}
	if err := errors.Join(client.Register(event), client.Release(event)); err != nil {
		t.Error(err)
	}
	node.Lock()
	if diff := cmp.Diff([]ociapi.Event{event, event}, node.Told); diff != "" {
		t.Error(diff)
	}
	node.Unlock()
	if early, err := client.Early(); err != nil || early.Grants["web"] != "0123" {
		t.Errorf("%v, %v", early, err)
	}
	err = client.Missed(asked)
	node.Lock()
	if err != nil || len(node.Asked) != 2 {
		t.Errorf("%v, %v", node.Asked, err)
	}
	node.Unlock()
	start := ociapi.Start{Container: asked, Mounted: "/run/weir/c/0123"}
	err = client.Start(start)
	node.Lock()
	if diff := cmp.Diff([]ociapi.Start{start}, node.Started); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	node.Unlock()
	listing := ociapi.Listing{Runtime: "r", Generation: 1 << 63, Begin: true, Containers: []ociapi.Listed{{
		Key: ociapi.Key{Namespace: "n", ID: "i"}, PID: 7, Running: true, Labels: map[string]string{"a": "b"},
	}}, Gone: []ociapi.Key{{Namespace: "n", ID: "j"}}}
	if again, err := client.List(listing); again || err != nil {
		t.Errorf("%v, %v", again, err)
	}
	node.Lock()
	if diff := cmp.Diff([]ociapi.Listing{listing}, node.Listed); diff != "" {
		t.Error(diff)
	}
	node.Fail = fmt.Errorf("%w: annotation \"weir/memory\": no size", control.ErrInvalid)
	node.Unlock()
	var refusal *ociapi.Refusal
	if _, err := client.Prepare(asked); !errors.As(err, &refusal) || refusal.Reason != `annotation "weir/memory": no size` {
		t.Errorf("%v", err)
	}
}

// What an image has fits into a request, however much longer JSON makes it.
func TestWorstImageFits(t *testing.T) {
	node := sample()
	client := ociapi.Client{Socket: serve(t, node)}
	preload := strings.Repeat("\x01", ociapi.PreloadBytesMax)
	if _, err := client.Prepare(ociapi.Container{ID: "web", Bundle: "/b", Preload: preload}); err != nil {
		t.Fatal(err)
	}
	node.Lock()
	got := node.Asked[0].Preload
	node.Unlock()
	if got != preload {
		t.Errorf("%d bytes of it came", len(got))
	}
	if err := client.Register(ociapi.Event{GrantID: "0123", Preload: &preload}); err != nil {
		t.Error(err)
	}
}

// A helper of a later version may tell more: that keeps no container from starting.
func TestHelpersOfOtherVersions(t *testing.T) {
	node := sample()
	socket := serve(t, node)
	status, body := raw(t, socket, "POST", ociapi.PreparePath, `{"id":"web","colour":"red"}`)
	if status != http.StatusOK || len(node.Asked) != 1 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := raw(t, socket, "POST", ociapi.PreparePath, `{"id":7}`); status != http.StatusBadRequest || !strings.Contains(body, "request: ") {
		t.Errorf("%d %s", status, body)
	}
}

// A helper in a pid namespace below the agent's, as where weir's socket is mounted into kind, tells pids that are other
// processes' here: nothing that it tells is taken.
func TestHelperInAnotherPIDNamespace(t *testing.T) {
	const variable = "WEIR_TEST_CONTROL"
	client := ociapi.Client{Socket: os.Getenv(variable)}
	if client.Socket != "" { // the helper
		_, prepare := client.Prepare(ociapi.Container{ID: "web", Bundle: "/b", PID: os.Getpid()})
		_, early := client.Early()
		_, list := client.List(ociapi.Listing{Generation: 1, Begin: true, End: true})
		for what, err := range map[string]error{
			"prepare": prepare, "early": early, "list": list, "missed": client.Missed(ociapi.Container{ID: "web"}),
			"register": client.Register(ociapi.Event{GrantID: "0123", PID: os.Getpid()}),
			"release":  client.Release(ociapi.Event{GrantID: "0123"}),
		} {
			var refusal *ociapi.Refusal
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "another pid namespace") {
				t.Errorf("%s: %v", what, err)
			}
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace")
	}
	node := sample()
	helper := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	helper.Env = append(os.Environ(), variable+"="+serve(t, node))
	helper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if out, err := helper.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	node.Lock()
	defer node.Unlock()
	if len(node.Asked)+len(node.Told)+len(node.Listed) > 0 {
		t.Errorf("it was taken: %+v, %+v, %+v", node.Asked, node.Told, node.Listed)
	}
}
