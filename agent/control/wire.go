// What the two ends agree on besides the types of api.go: limits, documents, and how errors
// travel.

package control

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Limits of the API. A request beyond one is refused with ErrInvalid, a peer that is slower than
// one is cut off.
const (
	requestBytesMax = 64 << 10
	factsBytesMax   = 1 << 20 // of what is told of a container: JSON makes an image's bytes six of each
	answerBytesMax  = 64 << 20
	headerBytesMax  = 8 << 10
	connectionsMax  = 256
	requestTimeMax  = 10 * time.Second
	idleTimeMax     = time.Minute
	dialTimeMax     = 2 * time.Second
	shutdownTimeMax = 2 * time.Second
	waitTimeMax     = time.Minute
)

// The documents of the API, which are also what `-o json` prints.
type (
	// InfoDoc answers GET /v1/info.
	InfoDoc struct {
		SchemaVersion int `json:"schema_version"`
		AgentInfo
	}
	// ContainersDoc answers GET /v1/containers.
	ContainersDoc struct {
		SchemaVersion int         `json:"schema_version"`
		Containers    []Container `json:"containers"`
	}
	// ContainerDoc answers GET /v1/containers/{ref}.
	ContainerDoc struct {
		SchemaVersion int `json:"schema_version"`
		Container
	}
	// RunDoc answers POST /v1/runs.
	RunDoc struct {
		SchemaVersion int `json:"schema_version"`
		RunGrant
	}
	// CapsDoc answers PATCH /v1/containers/{ref}/caps.
	CapsDoc struct {
		SchemaVersion int `json:"schema_version"`
		CapsResult
		DryRun bool `json:"dry_run"`
	}
	// QueueDoc answers GET /v1/queue.
	QueueDoc struct {
		SchemaVersion int    `json:"schema_version"`
		Flows         []Flow `json:"flows"`
	}
	// EventsDoc answers GET /v1/events. Each agent numbers its events anew, so numbers of answers
	// with different AgentStarted do not compare.
	EventsDoc struct {
		SchemaVersion int       `json:"schema_version"`
		AgentStarted  time.Time `json:"agent_started"`
		Events        []Event   `json:"events"`
	}
	// errorDoc is every other answer.
	errorDoc struct {
		SchemaVersion int       `json:"schema_version"`
		Error         errorBody `json:"error"`
	}
	errorBody struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
)

// kinds maps the errors that both sides know to their names and status codes.
var kinds = []struct {
	err    error
	name   string
	status int
}{
	{ErrNotFound, "not_found", http.StatusNotFound},
	{ErrInvalid, "invalid", http.StatusBadRequest},
	{ErrPermission, "permission", http.StatusForbidden},
	{ErrConflict, "conflict", http.StatusConflict},
	{ErrUnsupported, "unsupported", http.StatusNotImplemented},
}

// kindOf gives an error's name and status; one of no known kind is the agent's own failure.
func kindOf(err error) (string, int) {
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return kind.name, kind.status
		}
	}
	return "internal", http.StatusInternalServerError
}

// remoteError is an agent's refusal as the client returns it: the agent's words, and the same
// sentinel underneath that the Node returned.
type remoteError struct {
	kind    error
	message string
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

func errorOf(body errorBody) error {
	for _, kind := range kinds {
		if kind.name == body.Kind {
			return &remoteError{kind.err, body.Message}
		}
	}
	return &remoteError{nil, "the agent failed: " + body.Message}
}

// ErrUnreachable is matched by every error that says that no agent answers.
var ErrUnreachable = errors.New("agent unreachable")

// UnreachableError says at which socket no agent answers, and why.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no agent answers at %s: %v", e.Socket, e.Err)
}

// Unwrap makes the error match ErrUnreachable and its cause.
func (e *UnreachableError) Unwrap() []error { return []error{ErrUnreachable, e.Err} }
