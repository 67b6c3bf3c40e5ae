package containerd

// Tests of what the agent is told of one container.

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control/ociapi"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDescribe(t *testing.T) {
	pod := `{"annotations":{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"main",` +
		`"io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"team-a",` +
		`"io.kubernetes.cri.sandbox-uid":"u-1","io.kubernetes.cri.image-name":"web:1",` +
		`"weir/memory":"1GiB","weir/memory.other":"2GiB","other/x":"y"},` +
		`"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`
	for name, test := range map[string]struct {
		given Container
		want  ociapi.Listed
	}{
		"of a pod": {
			Container{Key: ociapi.Key{Namespace: "k8s.io", ID: "f00"}, Image: "sha256:0", Created: created, Spec: []byte(pod),
				Labels: map[string]string{"io.cri-containerd.kind": "container", "maintainer": "eva"}, Task: &Task{7, true}},
			ociapi.Listed{Key: ociapi.Key{Namespace: "k8s.io", ID: "f00"}, Name: "main", PodNamespace: "team-a", Pod: "web-0",
				PodUID: "u-1", Image: "web:1", Created: created, PID: 7, Running: true, HasGPU: true,
				Labels: map[string]string{"io.cri-containerd.kind": "container", "maintainer": "eva"},
				Asks:   map[string]string{"weir/memory": "1GiB"}, Others: []string{"weir/memory.other"}},
		},
		"of ctr": {
			Container{Key: ociapi.Key{Namespace: "default", ID: "box"}, Image: "docker.io/library/box:1", Spec: []byte(`{}`)},
			ociapi.Listed{Key: ociapi.Key{Namespace: "default", ID: "box"}, Image: "docker.io/library/box:1"},
		},
		"of nerdctl, created": {
			Container{Key: ociapi.Key{Namespace: "default", ID: "abc"},
				Spec: []byte(`{"annotations":{"nerdctl/name":"db","weir/memory.db":"1GiB","weir/memory.abc":"2GiB"}}`), Task: &Task{PID: 9}},
			ociapi.Listed{Key: ociapi.Key{Namespace: "default", ID: "abc"}, Name: "db", PID: 9,
				Asks: map[string]string{"weir/memory.abc": "2GiB", "weir/memory.db": "1GiB"}},
		},
		"of Docker": {
			Container{Key: ociapi.Key{Namespace: "moby", ID: "abc"}, Name: "db", Spec: []byte(`{"annotations":{"weir/memory.db":"1GiB"}}`)},
			ociapi.Listed{Key: ociapi.Key{Namespace: "moby", ID: "abc"}, Name: "db",
				Asks: map[string]string{"weir/memory.db": "1GiB"}},
		},
		"of a damaged specification": {
			Container{Key: ociapi.Key{Namespace: "default", ID: "x"}, Spec: []byte(`{"a`), Task: &Task{9, true}},
			ociapi.Listed{Key: ociapi.Key{Namespace: "default", ID: "x"}, PID: 9, Running: true},
		},
		"under NVIDIA's runtime": {
			Container{Key: ociapi.Key{Namespace: "default", ID: "x"}, Runtime: []byte("\x0a\x08/usr/bin/nvidia-container-runtime"),
				Spec: []byte(`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}`)},
			ociapi.Listed{Key: ociapi.Key{Namespace: "default", ID: "x"}, HasGPU: true},
		},
	} {
		got, ok := Describe(test.given)
		if diff := cmp.Diff(test.want, got); diff != "" || !ok {
			t.Errorf("%s: %v %s", name, ok, diff)
		}
	}
}

func TestSandboxesAreNotTold(t *testing.T) {
	if got, ok := Describe(Container{Spec: []byte(`{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`)}); ok {
		t.Errorf("%+v", got)
	}
	for _, more := range []string{`"weir/memory":"1GiB"}}`, `"a":"b"},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`,
		`"a":"b"},"linux":{"resources":{"devices":[{"allow":true}]}}}`} {
		spec := `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",` + more
		if got, ok := Describe(Container{Key: ociapi.Key{ID: "web"}, Spec: []byte(spec)}); !ok {
			t.Errorf("%s is hidden: %+v", spec, got)
		}
	}
	// An image's label hides nothing.
	if _, ok := Describe(Container{Labels: map[string]string{"io.cri-containerd.kind": "sandbox"}}); !ok {
		t.Error("it is not told")
	}
}

// A specification of many megabytes hides nothing.
func TestDescribeOfALongSpecification(t *testing.T) {
	spec := `{"annotations":{"x":"` + strings.Repeat("x", 15<<20) + `","weir/memory":"1GiB"},` +
		`"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`
	got, ok := Describe(Container{Key: ociapi.Key{Namespace: "default", ID: "long"}, Spec: []byte(spec)})
	if !ok || !got.HasGPU || got.Asks["weir/memory"] != "1GiB" {
		t.Errorf("%v, %+v", ok, got)
	}
}

// Whatever a container is labelled with, it fits into one message.
func TestDescribeIsBounded(t *testing.T) {
	huge, labels := strings.Repeat("\x01", 600), map[string]string{}
	for _, letter := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		labels[letter], labels[letter+letter] = strings.Repeat("\x01", 400), huge
	}
	got, ok := Describe(Container{Key: ociapi.Key{Namespace: "n", ID: "i"}, Image: huge, Labels: labels,
		Created: created.AddDate(20000, 0, 0)})
	if !ok || got.Image != "" || !got.Created.IsZero() || len(got.Labels) == 0 {
		t.Errorf("%v, %+v", ok, got)
	}
	for name, value := range got.Labels {
		if len(name)+len(value) > labelBytesMax {
			t.Errorf("label %s of %d bytes", name, len(value))
		}
	}
	for i := range 100 {
		labels[strings.Repeat("z", i)] = "\x01"
	}
	hostile := `{"annotations":{"io.kubernetes.cri.sandbox-name":"p","weir/memory":"` + strings.Repeat("9", 500) + `"`
	for i := range 100 {
		hostile += fmt.Sprintf(`,"weir/%d.\u0001%s":"x"`, i, strings.Repeat(`\u0001`, 100))
	}
	hostile += `},"process":{"args":["` + strings.Repeat(`\u0001`, 4096) + `"]}}`
	got, _ = Describe(Container{Key: ociapi.Key{Namespace: "n", ID: "i"}, Labels: labels, Spec: []byte(hostile)})
	if len(got.Others) == 0 || len(got.Others) == 100 || len(got.Command) != 1 {
		t.Errorf("it tells of %d others, and of the command %q", len(got.Others), got.Command)
	}
	if size := len(encode(got)); size > ociapi.ListingBytesMax || len(got.Labels) > labelsMax {
		t.Errorf("%d bytes, %d labels", size, len(got.Labels))
	}
	few := map[string]string{"a": "b"}
	if diff := cmp.Diff(few, bounded(maps.Clone(few), 10)); diff != "" {
		t.Error(diff)
	}
}
