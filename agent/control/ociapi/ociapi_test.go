package ociapi

// Tests of the client, against a server of the standard library and against what is none.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/oci"
)

func listen(t *testing.T) (net.Listener, Client) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener, Client{path}
}

func TestClient(t *testing.T) {
	listener, client := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PreparePath, func(w http.ResponseWriter, r *http.Request) {
		var container Container
		if err := json.NewDecoder(r.Body).Decode(&container); err != nil {
			t.Error(err)
		}
		if container.ID == "bad" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"schema_version":1,"error":{"kind":"invalid","message":"annotation \"weir/memory\": no size"}}`)
			return
		}
		// Long enough to be written in several pieces.
		json.NewEncoder(w).Encode(Prepared{Reason: strings.Repeat("x", 100_000), Grant: &oci.Grant{ID: container.ID}})
	})
	mux.HandleFunc("POST "+ReleasePath, func(w http.ResponseWriter, r *http.Request) {})
	go http.Serve(listener, mux)
	prepared, err := client.Prepare(Container{ID: "good"})
	if err != nil || prepared.Grant == nil || prepared.Grant.ID != "good" || len(prepared.Reason) != 100_000 {
		t.Errorf("%v, %v", prepared.Grant, err)
	}
	var refusal *Refusal
	if _, err := client.Prepare(Container{ID: "bad"}); !errors.As(err, &refusal) ||
		refusal.Reason != `annotation "weir/memory": no size` {
		t.Errorf("%v", err)
	}
	if err := client.Release(Event{GrantID: "x"}); err != nil {
		t.Error(err)
	}
	if err := client.Register(Event{}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	listener, client := listen(t)
	listener.Close()
	for _, client := range []Client{client, {"/nonexistent/control.sock"}, {strings.Repeat("x", 200)}} {
		if err := client.Release(Event{}); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), client.Socket) {
			t.Errorf("%v", err)
		}
	}
}

// TestWayOut: who is not answered is told the same whoever asks, with the agent's own directory.
func TestWayOut(t *testing.T) {
	for want, got := range map[string]error{
		"no agent answers at /run/weir/control.sock: connection refused; start one with: weir agent": Unreachable(
			"/run/weir/control.sock", unix.ECONNREFUSED),
		"no agent answers at /nonexistent/r/control.sock: no such file or directory; start one with: weir agent --run-dir /nonexistent/r": Client{
			"/nonexistent/r/control.sock"}.Release(Event{}),
		"no agent answers at /run/weir/control.sock: no answer within 5s; see the log of weir agent": Unreachable(
			"/run/weir/control.sock", late(unix.EAGAIN)),
	} {
		if got == nil || got.Error() != want {
			t.Errorf("%v", got)
		}
	}
}

func TestNoAgentAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"":                             "no agent of weir's",
		"SSH-2.0\r\n\r\n":              "no agent of weir's",
		"HTTP/1.0 200 OK\r\n":          "no agent of weir's",
		"HTTP/1.0 500 Oh\r\n\r\nno":    `"500 Oh"; is it of another version?`,
		"HTTP/1.0 200 OK\r\n\r\n[":     "the agent's answer: ",
		"HTTP/1.1 400 X\r\n\r\n{\"a\"": "is it of another version?",
	} {
		var into Prepared
		if err := parseAnswer([]byte(answer), &into); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// What is not UTF-8 arrives to the byte, and what has always been text is text.
func TestBytesArrive(t *testing.T) {
	const odd = "/a\xff<\x00b"
	container := Container{ID: odd, Bundle: odd, Root: odd, Preload: odd, Name: "web", PID: 7, HasGPU: true,
		Annotations: map[string]string{"weir/memory": "1GiB"}}
	preload := odd
	event, note := Event{GrantID: "0123", Bundle: odd, PID: 7, Preload: &preload}, Note{odd, oci.Grant{ID: "0123"}}
	for _, one := range []struct{ given, got any }{
		{&container, new(Container)}, {&event, new(Event)}, {&note, new(Note)}, {&Container{}, new(Container)}, {&Event{}, new(Event)},
	} {
		text, err := json.Marshal(one.given)
		if err == nil {
			err = json.Unmarshal(text, one.got)
		}
		if err != nil || !reflect.DeepEqual(one.given, one.got) {
			t.Errorf("%+v became %+v: %v", one.given, one.got, err)
		}
	}
	var read Container
	if err := json.Unmarshal([]byte(`{"bundle":"/b","has_gpu":true,"unknown":1}`), &read); err != nil ||
		read.Bundle != "/b" || !read.HasGPU {
		t.Errorf("%+v, %v", read, err)
	}
}

func TestNotePath(t *testing.T) {
	one, other := NotePath("/run/weir", "/bundles/a"), NotePath("/run/weir", "/bundles/b")
	if one == other || one != NotePath("/run/weir", "/bundles/a/") || filepath.Dir(one) != "/run/weir/oci" {
		t.Errorf("%s, %s", one, other)
	}
}

func TestKeyOf(t *testing.T) {
	for bundle, want := range map[string]Key{
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/f00":    {"k8s.io", "f00"},
		"/x/y/io.containerd.runtime.v1.linux/default/web/":            {"default", "web"},
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/../x":   {},
		"/var/lib/containers/storage/overlay-containers/f00/userdata": {},
		"": {},
	} {
		if got, ok := KeyOf(bundle); got != want || ok != (want != Key{}) {
			t.Errorf("%s: %+v, %v", bundle, got, ok)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"grant\":{\"id\":\"x\"}}"))
	f.Add([]byte("HTTP/1.0 400 Bad Request\r\n\r\n{\"error\":{\"message\":\"no\"}}"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var into Prepared
		parseAnswer(answer, &into)
	})
}
