package containerd

// What the agent is told of one container.

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/agent/control/ociapi"
	"weir/oci"
)

// Container is one of containerd's containers.
type Container struct {
	ociapi.Key
	Name    string // as an engine above containerd has it, where the specification has none
	Image   string
	Labels  map[string]string
	Runtime []byte // the runtime's options, as they are encoded
	Spec    []byte // the OCI runtime specification, JSON
	Created time.Time
	Task    *Task // nil: it has none
}

// Task is what runs of a container.
type Task struct {
	PID     int // of its init
	Running bool
}

// Bounds of what is told, besides those of package ociapi: what is larger is left out.
const (
	labelsMax     = 64
	labelBytesMax = 512     // of one, or one annotation
	labelsBytes   = 8 << 10 // of all
	asksBytes     = 2 << 10
	othersBytes   = 1 << 10
)

// podUIDLabel is how the kubelet labels a pod's containers.
const podUIDLabel = "io.kubernetes.pod.uid"

// Describe is what the agent is told of a container; ok is false for one that holds a pod's namespaces
// and runs nothing of a user's. That, its name and its pod are in the specification's annotations, which are
// from who starts it; labels may be from its image, so nothing follows from them.
func Describe(c Container) (listed ociapi.Listed, ok bool) {
	// It is as long as a message of containerd's may be, 16 MiB. Of one that is not in the form of specifications,
	// nothing is known.
	facts, _ := oci.Look(c.Spec, strings.Contains(string(c.Runtime), "nvidia"))
	if facts.IsSandbox(c.ID) {
		return ociapi.Listed{}, false
	}
	listed = ociapi.Listed{
		Key:          c.Key,
		Name:         first(facts.Name, c.Name),
		PodNamespace: first(facts.Namespace),
		Pod:          first(facts.Pod),
		PodUID:       first(facts.PodUID, c.Labels[podUIDLabel]),
		Image:        first(facts.Image, c.Image),
		Labels:       bounded(c.Labels, labelsBytes),
		Command:      facts.Command,
		HasGPU:       facts.HasGPU,
		AllDevices:   facts.AllDevices,
	}
	facts.Name = first(listed.Name, c.ID)
	listed.Asks = bounded(facts.Requests(), asksBytes)
	if facts.InPod() {
		listed.Others = few(oci.Strangers(facts.Annotations, facts.Name), othersBytes)
	}
	if c.Task != nil {
		listed.PID, listed.Running = c.Task.PID, c.Task.Running
	}
	if year := c.Created.Year(); year > 0 && year < 10000 { // as JSON has it
		listed.Created = c.Created.UTC()
	}
	if len(encode(listed)) > ociapi.ListingBytesMax {
		listed.Labels = nil // each byte of theirs may take six
	}
	return listed, true
}

// first is the first text that is there and not too long.
func first(texts ...string) string {
	for _, text := range texts {
		if text != "" && len(text) <= ociapi.NameBytesMax {
			return text
		}
	}
	return ""
}

// bounded keeps of a set of texts what is within the bounds, in the order of their names; nil is none.
func bounded(texts map[string]string, bytesMax int) map[string]string {
	var kept map[string]string
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		size := len(name) + len(texts[name])
		if size > labelBytesMax || sum+size > bytesMax || len(kept) == labelsMax {
			continue
		}
		if kept == nil {
			kept = make(map[string]string)
		}
		kept[name], sum = texts[name], sum+size
	}
	return kept
}

// few are the first of some texts that are within the bounds; nil is none.
func few(texts []string, bytesMax int) (kept []string) {
	for _, text := range texts {
		if bytesMax -= len(text); bytesMax < 0 || len(text) > labelBytesMax || len(kept) == labelsMax {
			break
		}
		kept = append(kept, text)
	}
	return kept
}

// encode writes a container as it is sent.
func encode(listed ociapi.Listed) string {
	text, err := json.Marshal(listed)
	if err != nil {
		panic(err) // there is nothing in it that JSON cannot have
	}
	return string(text)
}
