package oci

// Tests of what is read from a specification.

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandIsBounded(t *testing.T) {
	long := strings.Repeat("é", commandBytesMax)
	for name, test := range map[string]struct{ given, want []string }{
		"none":  {nil, nil},
		"short": {[]string{"sh", "", "-c", "\x1b[31m"}, []string{"sh", "", "-c", "\x1b[31m"}},
		"long":  {[]string{"a", long, "c"}, []string{"a", long[:commandBytesMax-2]}},
	} {
		if diff := cmp.Diff(test.want, shown(test.given)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if many := shown(make([]string, 10_000)); len(many) != commandBytesMax {
		t.Errorf("%d words", len(many))
	}
}

func TestLook(t *testing.T) {
	spec, err := os.ReadFile("testdata/cri.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Look(spec, false)
	if err != nil {
		t.Fatal(err)
	}
	if got.Annotations["weir/memory.serve"] != "8GiB" || !Asks(got.Annotations, got.Name) {
		t.Errorf("annotations %v", got.Annotations)
	}
	got.Annotations = nil
	want := Facts{
		Name: "serve", Namespace: "team-a", Pod: "llm-0", PodUID: "c0ffee", Image: "docker.io/acme/llm:1", HasGPU: true,
		Command:  []string{"/serve"},
		RootPath: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/5f3a/rootfs", PreloadSource: "/srv/preload",
		Mounted:     []string{"/dev", "/etc/ld.so.preload", "/run/weir", "/data"},
		CgroupsPath: "kubepods-burstable-podc0ffee.slice:cri-containerd:5f3a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLookAtNerdctls(t *testing.T) {
	got, err := Look([]byte(`{"annotations":{"nerdctl/name":"db","weir/memory.db":"1GiB"}}`), false)
	if err != nil || got.Name != "db" || !Asks(got.Annotations, got.Name) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHasGPU(t *testing.T) {
	for _, test := range []struct {
		spec   string
		nvidia bool
		want   bool
	}{
		{`{}`, true, false},
		{`{"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`, false, true},
		{`{"linux":{"devices":[{"path":"/dev/nvidia-caps/nvidia-cap3"}]}}`, false, true},
		{`{"linux":{"devices":[{"path":"/dev/nvidiactl"},{"path":"/dev/nvidia-uvm"},{"path":"/dev/nvidia"}]}}`, false, false},
		{`{"mounts":[{"destination":"/dev/nvidia12"}]}`, false, true},
		{`{"linux":{"devices":[{"path":"/dev/card","type":"c","major":195,"minor":1}]}}`, false, true},
		{`{"linux":{"devices":[{"path":"/dev/nvidiactl","type":"c","major":195,"minor":255}]}}`, false, false},
		{`{"linux":{"devices":[{"path":"/dev/disk","type":"b","major":195,"minor":0}]}}`, false, false},
		{`{"mounts":[{"destination":"/dev/card","source":"/dev/nvidia0"}]}`, false, true},
		{`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}`, false, false},
		{`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}`, true, true},
		{`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook"}]}}`,
			false, true},
		{`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"hooks":{"prestart":[{"path":"/usr/bin/other"}]}}`, false, false},
		{`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=void","NVIDIA_VISIBLE_DEVICES=","X=1"]}}`, true, false},
		// What else NVIDIA's runtime takes for a wish: a device plugin's mounts and annotations, and old images.
		{`{"mounts":[{"destination":"/var/run/nvidia-container-devices/GPU-1","source":"/dev/null"}]}`, true, true},
		{`{"mounts":[{"destination":"/var/run/nvidia-container-devices/GPU-1","source":"/dev/null"}]}`, false, false},
		{`{"annotations":{"cdi.k8s.io/plugin_1":"nvidia.com/gpu=0"}}`, true, true},
		{`{"annotations":{"cdi.k8s.io/plugin_1":"vendor.com/nic=0"}}`, true, false},
		{`{"process":{"env":["CUDA_VERSION=8.0"]}}`, true, true},
		{`{"process":{"env":["CUDA_VERSION=8.0"]}}`, false, false},
		{`{"process":{"env":["CUDA_VERSION=12.4","NVIDIA_REQUIRE_CUDA=cuda>=12.4"]}}`, true, false},
		{`{"process":{"env":["CUDA_VERSION=8.0","NVIDIA_VISIBLE_DEVICES=none"]}}`, true, false},
	} {
		got, err := Look([]byte(test.spec), test.nvidia)
		if err != nil || got.HasGPU != test.want {
			t.Errorf("%s: %v, %v", test.spec, got.HasGPU, err)
		}
	}
	if _, err := Look([]byte(`{"mounts":7}`), false); err == nil {
		t.Error("a bad specification was read")
	}
}

// What device rules allow counts, be there nodes or not; what a privileged container has with all else is not given.
func TestDeviceRules(t *testing.T) {
	const (
		null     = `{"path":"/dev/null","type":"c","major":1,"minor":3}`
		gpu      = `{"path":"/dev/nvidia0","type":"c","major":195,"minor":0}`
		none     = `{"allow":false,"access":"rwm"}`
		all      = `{"allow":true,"access":"rwm"}`
		makes    = `{"allow":true,"type":"c","access":"m"}`
		cards    = `{"allow":true,"type":"c","major":195,"access":"rw"}`
		noCards  = `{"allow":false,"type":"c","major":195,"access":"rwm"}`
		bound    = `"mounts":[{"destination":"/dev","type":"bind","source":"/dev"}],`
		boundGPU = `"mounts":[{"destination":"/gpu","type":"bind","source":"/dev/nvidia0"}],`
	)
	for _, test := range []struct {
		mounts, devices, rules string
		hasGPU, allDevices     bool
	}{
		{"", "", none, false, false},
		{"", "", none + "," + makes, false, false},
		{bound, "", none, false, false},
		{bound, "", none + "," + cards, true, false},
		{"", "", none + "," + cards, true, false}, // by mknod, or by a node in the image
		{"", "", none + `,{"allow":true,"type":"a","major":195,"minor":-1}`, true, false},
		{"", "", none + `,{"allow":true,"type":"c","major":195,"minor":1,"access":"r"}`, true, false},
		{"", "", none + `,{"allow":true,"type":"c","major":195,"minor":255,"access":"rw"}`, false, false},
		{"", "", none + `,{"allow":true,"type":"b","major":195,"access":"rw"}`, false, false},
		{"", "", cards + "," + noCards, false, false},
		{"", "", cards + "," + none, false, false},
		{"", "", all, false, true},
		{"", "", all + "," + noCards, false, false},
		{"", "", none + `,{"allow":true,"type":"c","major":-1,"minor":-1,"access":"rwm"}`, false, true},
		{bound, "", all, false, true},
		{"", null + "," + gpu, all, false, true}, // privileged, as the CRI and Docker have it
		{"", gpu, all, true, true},               // privileged, without the host's devices, and given a GPU
		{boundGPU, null + "," + gpu, all, true, true},
		{"", null + "," + gpu, none, true, false},
	} {
		spec := `{` + test.mounts + `"linux":{"devices":[` + test.devices + `],"resources":{"devices":[` + test.rules + `]}}}`
		got, err := Look([]byte(spec), false)
		if err != nil || got.HasGPU != test.hasGPU || got.AllDevices != test.allDevices {
			t.Errorf("%s: a GPU %v, all devices %v, %v", spec, got.HasGPU, got.AllDevices, err)
		}
	}
	asking := `{"annotations":{"weir/memory":"1GiB"},"linux":{"devices":[` + null + `,` + gpu + `],"resources":{"devices":[` + all + `]}}}`
	if got, err := Look([]byte(asking), false); !got.HasGPU || !got.AllDevices || err != nil {
		t.Errorf("who asks has the nodes already: %+v, %v", got, err)
	}
	if got, err := Look([]byte(`{"mounts":[{"destination":"/caps","source":"/dev/nvidia-caps"}]}`), false); !got.HasGPU || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A bundle that was edited before is looked at as if it had not been.
func TestLookAfterEdit(t *testing.T) {
	edited, err := Edit([]byte(`{"root":{"path":"rootfs"}}`), grant())
	if err != nil {
		t.Fatal(err)
	}
	if facts, err := Look(edited, false); err != nil || facts.PreloadSource != "" || facts.HasGPU {
		t.Errorf("%+v, %v", facts, err)
	}
}

func TestSandbox(t *testing.T) {
	for annotation, want := range map[string]bool{
		`"io.kubernetes.cri.container-type":"sandbox"`:   true,
		`"io.kubernetes.cri.container-type":"container"`: false,
		`"io.kubernetes.cri-o.ContainerType":"sandbox"`:  true,
		`"weir/memory":"1GiB"`:                           false,
	} {
		got, err := Look([]byte(`{"annotations":{`+annotation+`}}`), false)
		if err != nil || got.Sandbox != want {
			t.Errorf("%s: %v, %v", annotation, got.Sandbox, err)
		}
	}
}

// That it is a sandbox is believed of what can use no GPU, and of no other container that asks for a part of one.
func TestIsSandbox(t *testing.T) {
	const says = `{"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"5f3a"`
	for _, test := range []struct {
		spec, id string
		want     bool
	}{
		{says + `}}`, "5f3a", true},
		{says + `}}`, "other", true},
		{says + `,"weir/memory":"1GiB"}}`, "5f3a", true}, // by pod_annotations
		{says + `,"weir/memory":"1GiB"}}`, "other", false},
		{says + `,"weir/memory.other":"1GiB"}}`, "other", false},
		{says + `},"linux":{"devices":[{"path":"/dev/nvidia0"}]}}`, "5f3a", false},
		{says + `},"linux":{"resources":{"devices":[{"allow":true,"access":"rwm"}]}}}`, "5f3a", false},
		{`{}`, "5f3a", false},
	} {
		facts, err := Look([]byte(test.spec), false)
		if err != nil || facts.IsSandbox(test.id) != test.want {
			t.Errorf("%s of %s: %v, %v", test.spec, test.id, facts.IsSandbox(test.id), err)
		}
	}
}

func TestApplies(t *testing.T) {
	for _, test := range []struct {
		annotation, name string
		own, ok          bool
	}{
		{"weir/memory", "memory", false, true}, {"weir/memory-min.web", "memory-min", true, true},
		{"weir/memory.db", "", false, false}, {"weir/injected", "", false, false}, {"weirdo/memory", "", false, false},
		{"weir/", "", false, true}, {"weir/memory.web.x", "", false, false},
	} {
		name, own, ok := Applies(test.annotation, "web")
		if name != test.name || own != test.own || ok != test.ok {
			t.Errorf("%s: %q, %v, %v", test.annotation, name, own, ok)
		}
	}
	if Asks(map[string]string{"weir/memory.db": "1", "a": "b", Marker: "x"}, "web") {
		t.Error("a container that asks for nothing was taken for one that does")
	}
}

// Who writes pods can set the annotations of another runtime than the node's: they decide nothing in silence.
func TestDisputed(t *testing.T) {
	for annotations, want := range map[string]string{
		`"io.kubernetes.cri.sandbox-namespace":"a"`:                                       "",
		`"io.kubernetes.cri.sandbox-namespace":"a","io.kubernetes.pod.namespace":"a"`:     "",
		`"io.kubernetes.cri.sandbox-namespace":"vip","io.kubernetes.pod.namespace":"a"`:   `"vip", and "io.kubernetes.pod.namespace" is "a"`,
		`"io.kubernetes.cri.image-name":"vip/a","io.kubernetes.cri-o.ImageName":"b"`:      `"vip/a", and "io.kubernetes.cri-o.ImageName" is "b"`,
		`"io.kubernetes.cri.image-name":"vip/a","io.kubernetes.cri-o.ImageName":""`:       `is ""`,
		`"io.kubernetes.cri.image-name":"a","org.opencontainers.image.ref.name":"b"`:      "",
		`"org.opencontainers.image.ref.name":"vip/a","io.kubernetes.cri-o.ImageName":"b"`: "",
	} {
		facts, err := Look([]byte(`{"annotations":{`+annotations+`}}`), false)
		if err != nil || (facts.Disputed == "") != (want == "") || !strings.Contains(facts.Disputed, want) {
			t.Errorf("%s: %q, %v", annotations, facts.Disputed, err)
		}
	}
	facts, err := Look([]byte(`{"annotations":{"org.opencontainers.image.ref.name":"vip/a","io.kubernetes.cri-o.ImageName":""}}`), false)
	if err != nil || facts.Image != "" {
		t.Errorf("an image without a name is %q, %v", facts.Image, err)
	}
}
