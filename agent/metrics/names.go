package metrics

// What containers are called in labels. Names are what users choose: here they are short, can be printed, and no two
// containers have the same labels, since a scrape with two metrics that are alike would fail as a whole.

import (
	"strconv"
	"strings"

	"weir/agent/control"
)

const (
	// labelBytesMax bounds each label.
	labelBytesMax = 128
	// idLetters is how much of its id tells a container from another of the same name.
	idLetters = 12
)

// named is a container's labels: its name, namespace and pod.
type named struct{ name, namespace, pod string }

func (l named) values(more ...string) []string {
	return append([]string{l.name, l.namespace, l.pod}, more...)
}

// identity tells containers apart: the agent's ids are unique, those of container runtimes are so in their namespaces.
type identity struct{ namespace, id string }

// names remembers what containers are called, so that one keeps its labels for as long as it is there: of two that have the
// same name, the one that was there later has a part of its id added to it.
type names struct {
	given map[identity]named
	taken map[named]bool
}

// name names all containers that there are, each once.
func (n *names) name(list []control.Container) map[identity]named {
	before := n.given
	n.given, n.taken = make(map[identity]named, len(list)), make(map[named]bool, len(list))
	for i := range list {
		if id := identityOf(&list[i]); before[id] != (named{}) {
			n.given[id], n.taken[before[id]] = before[id], true
		}
	}
	for i := range list {
		if id := identityOf(&list[i]); n.given[id] == (named{}) {
			n.given[id] = n.free(&list[i])
			n.taken[n.given[id]] = true
		}
	}
	return n.given
}

func identityOf(c *control.Container) identity { return identity{c.Namespace, c.ID} }

// free is what a container is called that has just come.
func (n *names) free(c *control.Container) named {
	l := named{label(c.Name), label(c.Namespace), label(c.Pod)}
	if !n.taken[l] && l != (named{}) {
		return l
	}
	base := l.name + "~" + label(c.ID[:min(len(c.ID), idLetters)])
	for i := 1; ; i++ {
		if l.name = base; i > 1 {
			l.name += "~" + strconv.Itoa(i)
		}
		if !n.taken[l] {
			return l
		}
	}
}

// label is a text as it may stand in a label.
func label(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), labelBytesMax)], "?"))
}
