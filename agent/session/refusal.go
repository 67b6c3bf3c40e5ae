package session

// What is said of starts that are refused: whoever started the container is told by its runtime, and
// whoever looks after the node by an event.

import (
	"strings"

	"weir/agent/control"
	"weir/agent/control/ociapi"
)

// refusedBytesMax bounds the reason in an event.
const refusedBytesMax = 1024

// tellRefused leaves word of a container that does not start for a reason of weir's; nil is none.
func (n *Node) tellRefused(asked *ociapi.Container, reason error) {
	if reason == nil || len(asked.Annotations) == 0 && !asked.HasGPU { // the latter start whatever is said of them
		return
	}
	message := "not started"
	if asked.Pod != "" {
		message += " in pod " + asked.Pod
	}
	message += ": " + control.Reason(reason)
	message = strings.ToValidUTF8(message[:min(len(message), refusedBytesMax)], "")
	n.events.Add(control.Event{Type: "start-refused", Container: nameOf(asked.Name), Namespace: asked.Namespace,
		Message: message})
}
