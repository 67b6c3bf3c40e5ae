package oci

// Tests of which annotations are for a container, in a pod and out of one.

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsOfFacts(t *testing.T) {
	named := map[string]string{"weir/memory.train": "1", "weir/memory.trian": "2", "weir/gpu": "0", Marker: "x",
		"a.train": "y", "weir/.": "z"}
	in := func(key string) Facts {
		annotations := map[string]string{key: "container"}
		for name, value := range named {
			annotations[name] = value
		}
		return Facts{Name: "train", Annotations: annotations}
	}
	alone := Facts{Name: "train", Annotations: named}
	own := map[string]string{"weir/memory.train": "1", "weir/gpu": "0"}
	all := map[string]string{"weir/memory.train": "1", "weir/memory.trian": "2", "weir/gpu": "0", "weir/.": "z"}
	pod := alone
	pod.Pod = "web-0"
	uid := alone
	uid.PodUID = "0"
	for name, test := range map[string]struct {
		facts Facts
		want  map[string]string
	}{
		"alone": {alone, all}, "pod": {pod, own}, "uid": {uid, own},
		"containerd": {in("io.kubernetes.cri.container-type"), own},
		"named":      {in("io.kubernetes.container.name"), own},
		"podman":     {in("io.kubernetes.cri-o.ContainerType"), own},
	} {
		if diff := cmp.Diff(test.want, test.facts.Requests()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	mistaken := Facts{Name: "train", Annotations: map[string]string{"weir/memory.trian": "2"}}
	if !mistaken.Asks() {
		t.Error("a container that is alone, and whose name is mistyped, asks for nothing")
	}
	mistaken.Pod = "web-0"
	if mistaken.Asks() {
		t.Error("a container of a pod asks by another's annotation")
	}
}
