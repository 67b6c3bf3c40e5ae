package oci

// What a specification says of its container.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Facts are what weir looks at in a specification. An empty field is not said there.
type Facts struct {
	Annotations map[string]string
	// Name is the container's name in its pod; Namespace, Pod and PodUID are the pod's.
	Name, Namespace, Pod, PodUID string
	Image                        string
	// Command is what is worth showing of its first program's command line.
	Command []string
	// Sandbox: it says that it holds a pod's namespaces and runs nothing of the user's. See IsSandbox.
	Sandbox   bool
	SandboxID string // of its pod
	// HasGPU: a GPU is given to it, by its device node or its number, or was asked of NVIDIA's runtime.
	HasGPU bool
	// AllDevices: it may use every device of the node, as a privileged container may. GPUs that come with all
	// others were not given to one that asks weir for nothing.
	AllDevices bool
	// RootPath is its root file system: a path, from the bundle where it is not absolute.
	RootPath string
	// PreloadSource is the file, not of weir's, that is mounted over its /etc/ld.so.preload.
	PreloadSource string
	// Mounted are the places at which something is mounted.
	Mounted     []string
	CgroupsPath string
	// Disputed says which annotations give the namespace or the image twice, in different words; empty: none.
	Disputed string
}

// The annotations by which container runtimes name things, theirs in order of preference. Whoever writes pods can set
// those that the node's own runtime does not write: CRI-O gives its containers all of a pod's annotations.
var (
	nameKeys      = []string{"io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"}
	namespaceKeys = []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}
	podKeys       = []string{"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"}
	podUIDKeys    = []string{"io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"}
	imageKeys     = []string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName",
		"io.podman.annotations.image-name", "org.opencontainers.image.ref.name"}
	typeKeys      = []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}
	sandboxIDKeys = []string{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"}
)

// visibleDevices asks NVIDIA's runtime for GPUs; its image-only values ask for none.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES="

// Look reads what a specification says. An NVIDIA runtime below is one that gives GPUs by the
// environment; without it the environment, which every CUDA image sets, gives none.
func Look(spec []byte, nvidiaRuntime bool) (Facts, error) {
	return LookBeyond(spec, nvidiaRuntime, nil)
}

// LookBeyond is Look where annotations with these values are the image's, and so name nothing. Weir's stay: who starts
// the container is told that they ask for nothing.
func LookBeyond(spec []byte, nvidiaRuntime bool, ofImage map[string]string) (Facts, error) {
	var s Parts
	if err := json.Unmarshal(spec, &s); err != nil {
		return Facts{}, fmt.Errorf("reading the container's specification: %w", err)
	}
	maps.DeleteFunc(s.Annotations, func(annotation, value string) bool {
		of, there := ofImage[annotation]
		return there && of == value && !IsRequest(annotation)
	})
	return s.Facts(nvidiaRuntime), nil
}

// Parts are those of a specification that facts are taken from.
type Parts struct {
	Annotations map[string]string
	Root        struct{ Path string }
	Process     struct{ Args, Env []string }
	Mounts      []Mount
	Hooks       struct{ Prestart []Hook }
	Linux       struct {
		Devices     []Node
		Resources   struct{ Devices []Rule }
		CgroupsPath string
	}
}

// Node is a device node of a specification.
type Node struct {
	Path, Type   string
	Major, Minor int64
}

// Facts are what Look says of a specification with these parts.
func (s *Parts) Facts(nvidiaRuntime bool) Facts {
	of := func(keys []string) string {
		for _, key := range keys {
			if value := s.Annotations[key]; value != "" {
				return value
			}
		}
		return ""
	}
	facts := Facts{
		Annotations: s.Annotations,
		Name:        of(nameKeys), Namespace: of(namespaceKeys), Pod: of(podKeys), PodUID: of(podUIDKeys),
		Image: s.image(), Command: shown(s.Process.Args),
		Disputed: cmp.Or(s.dispute(namespaceKeys[:2]), s.dispute(imageKeys[:2])),
		Sandbox:  of(typeKeys) == "sandbox", SandboxID: of(sandboxIDKeys),
		RootPath: s.Root.Path, CgroupsPath: s.Linux.CgroupsPath,
	}
	facts.AllDevices, facts.HasGPU = allowed(s.Linux.Resources.Devices)
	asks := Asks(s.Annotations, facts.Name)
	if asks || !facts.AllDevices || !slices.ContainsFunc(s.Linux.Devices, Node.isNull) {
		facts.HasGPU = facts.HasGPU || slices.ContainsFunc(s.Linux.Devices, Node.isGPU)
	}
	for _, m := range s.Mounts {
		facts.HasGPU = facts.HasGPU || isGPU(m.Destination) || isGPU(m.Source)
		facts.Mounted = append(facts.Mounted, clean(m.Destination))
		if clean(m.Destination) == PreloadPlace && !ofBefore(m.Source, s.Annotations[Marker]) {
			facts.PreloadSource = m.Source
		}
	}
	nvidia := nvidiaRuntime || slices.ContainsFunc(s.Hooks.Prestart, givesNVIDIA)
	facts.HasGPU = facts.HasGPU || nvidia && s.asksNVIDIA()
	return facts
}

// asksNVIDIA tells whether NVIDIA's runtime would give the container a GPU: by a variable, by a mount of nothing whose
// place names one, or by an annotation that names a CDI device. Images of old that set no variable are given all.
func (s *Parts) asksNVIDIA() bool {
	has := func(variable string) bool {
		return slices.ContainsFunc(s.Process.Env, func(v string) bool { return strings.HasPrefix(v, variable) })
	}
	if slices.ContainsFunc(s.Process.Env, namesNVIDIA) || !has(visibleDevices) && has("CUDA_VERSION=") && !has("NVIDIA_REQUIRE_CUDA=") {
		return true
	}
	for annotation, value := range s.Annotations {
		if strings.HasPrefix(annotation, "cdi.k8s.io/") && strings.Contains(value, "nvidia.com/") {
			return true
		}
	}
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool {
		return strings.HasPrefix(clean(m.Destination), "/var/run/nvidia-container-devices/")
	})
}

// image is what the runtime says of it: CRI-O's annotation is there without a name, too, and is not made good by others.
func (s *Parts) image() string {
	for _, key := range imageKeys {
		if name, there := s.Annotations[key]; there {
			return name
		}
	}
	return ""
}

// dispute says that two annotations are there, of containerd's and of CRI-O's, that are not the same: one is not the
// runtime's own, and rules go by them.
func (s *Parts) dispute(keys []string) string {
	one, first := s.Annotations[keys[0]]
	other, second := s.Annotations[keys[1]]
	if !first || !second || one == other {
		return ""
	}
	return fmt.Sprintf("annotation %q is %.70q, and %q is %.70q", keys[0], one, keys[1], other)
}

// IsSandbox tells whether the container with this id holds a pod's namespaces and runs nothing of the user's. Any
// container can be made with the annotation that says so. It is believed of one that can use no GPU, and that asks for
// none: but a pod's own, which has the pod's id, may have what the pod's containers are to be given.
func (f *Facts) IsSandbox(id string) bool {
	return f.Sandbox && !f.HasGPU && !f.AllDevices && (f.SandboxID == id || !Asks(f.Annotations, cmp.Or(f.Name, id)))
}

// nvidiaHooks are the programs that give GPUs by the environment, as a hook: of them Docker makes `--gpus`.
var nvidiaHooks = []string{"nvidia-container-runtime-hook", "nvidia-container-toolkit"}

func givesNVIDIA(h Hook) bool { return slices.Contains(nvidiaHooks, path.Base(h.Path)) }

// ofBefore tells a merged file that an earlier edit of the specification has mounted, and which is
// gone: a bundle may be started again.
func ofBefore(source, id string) bool { return id != "" && path.Base(path.Dir(source)) == id }

// isGPU tells whether it is the node of a GPU, by its path or its number.
func (n Node) isGPU() bool { return isGPU(n.Path) || n.numbersGPU() }

// isNull tells whether it is that of /dev/null, which every container has anyway: it is listed only where all of the
// host's nodes are, as privileged containers have them.
func (n Node) isNull() bool { return n.Type == "c" && n.Major == 1 && n.Minor == 3 }

// isGPU tells whether a path is the device node of a GPU. Those that only control the driver are not.
func isGPU(device string) bool {
	name, found := strings.CutPrefix(clean(device), "/dev/nvidia")
	return found && name != "" && strings.Trim(name, "0123456789") == "" ||
		strings.HasPrefix(clean(device)+"/", "/dev/nvidia-caps/") || clean(device) == "/dev/dxg"
}

// numbersGPU tells it from the numbers, whatever the node is called: programs can make another by its name.
func (n Node) numbersGPU() bool { return n.Type != "b" && n.Major == nvidia && n.Minor < modeset }

// The major number of NVIDIA's nodes. Minor ones below modeset are the cards'.
const nvidia, modeset = 195, 254

func namesNVIDIA(variable string) bool {
	value, found := strings.CutPrefix(variable, visibleDevices)
	return found && value != "" && value != "void" && value != "none"
}

// clean is a path in the container as the runtime takes it.
func clean(name string) string { return path.Clean("/" + name) }
