// Tests of the requests of container runtimes' helpers, by their own small client.

package control_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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
