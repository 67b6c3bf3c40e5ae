package session

// Annotations of pods that name a container which the pod does not have. When a container is made, its
// runtime does not know which others its pod will have; so it is looked at later, when none has come for
// some time, or none is left.

import (
	"maps"
	"slices"
	"strings"
	"time"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/oci"
)

const (
	// misnamedWait is how long after a pod's latest container no other is expected any more. An image may
	// take longer to come: what is told says so.
	misnamedWait = 2 * time.Minute
	// misnamedListed is how many of a pod's containers are named.
	misnamedListed = 8
)

// podKey names a pod.
type podKey struct{ namespace, name, uid string }

// podNames is what is known of the names of one pod's containers.
type podNames struct {
	latest time.Time           // when the last one turned up
	ids    map[ociapi.Key]bool // of those that there are
	has    map[string]bool     // names that it has, or has had
	asked  map[string]bool     // annotations that name a container: whether it has been told of
}

// misnaming is an annotation that asks for nobody.
type misnaming struct {
	pod        podKey
	annotation string
	has        []string
}

// pods are those of which a container is there.
type pods map[podKey]*podNames

// see takes note of the containers that there are now.
func (p pods) see(all map[ociapi.Key]ociapi.Listed, now time.Time) {
	for _, names := range p {
		maps.DeleteFunc(names.ids, func(id ociapi.Key, _ bool) bool { _, there := all[id]; return !there })
	}
	for id, l := range all {
		if l.Pod != "" {
			p.of(podKey{l.PodNamespace, l.Pod, l.PodUID}).add(id, l, now)
		}
	}
}

// due are the annotations that name nobody, of pods that are complete or over; each is told once.
func (p pods) due(now time.Time) (found []misnaming) {
	for key, names := range p {
		over := len(names.ids) == 0
		if over || now.Sub(names.latest) >= misnamedWait {
			found = append(found, names.missing(key)...)
		}
		if over {
			delete(p, key)
		}
	}
	return found
}

func (p pods) of(key podKey) *podNames {
	if p[key] == nil {
		p[key] = &podNames{ids: make(map[ociapi.Key]bool), has: make(map[string]bool), asked: make(map[string]bool)}
	}
	return p[key]
}

func (names *podNames) add(id ociapi.Key, l ociapi.Listed, now time.Time) {
	if names.ids[id] {
		return
	}
	names.ids[id], names.latest, names.has[l.Name] = true, now, true
	for _, annotation := range l.Others {
		if !names.asked[annotation] {
			names.asked[annotation] = false
		}
	}
}

func (names *podNames) missing(key podKey) (found []misnaming) {
	for _, annotation := range slices.Sorted(maps.Keys(names.asked)) {
		if of, _ := oci.NamedBy(annotation); !names.asked[annotation] && !names.has[of] {
			names.asked[annotation] = true
			found = append(found, misnaming{key, annotation, slices.Sorted(maps.Keys(names.has))})
		}
	}
	return found
}

// tellMisnamed leaves word of annotations that ask for nobody.
func (n *Node) tellMisnamed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.pods.due(n.opts.Now()) {
		n.events.Add(m.event())
	}
}

func (m misnaming) event() control.Event {
	has := m.has
	if len(has) > misnamedListed {
		has = append(slices.Clone(has[:misnamedListed]), "…")
	}
	return control.Event{Type: "misnamed", Namespace: m.pod.namespace, Message: "annotation " + m.annotation + " of pod " + m.pod.name +
		" asks for nobody: the pod has had no container of that name, but " + strings.Join(has, ", ") +
		"; name one of those, and make the pod anew"}
}
