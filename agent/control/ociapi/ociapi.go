// Package ociapi is the part of the control API by which the helpers of container runtimes, weir-runtime
// and weir-hook, speak with the agent: its documents and a client. The client is small, since it is
// started with every container, and needs no HTTP library: it sends one request and reads to the end.
package ociapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/oci"
)

// The requests' paths.
const (
	Prefix       = "/v1/oci/"
	PreparePath  = Prefix + "prepare"
	RegisterPath = Prefix + "register"
	ReleasePath  = Prefix + "release"
	EarlyPath    = Prefix + "early"
	MissedPath   = Prefix + "missed"
	StartPath    = Prefix + "start"
)

const (
	// answerWait is how long the agent may take, in all of connecting, reading and writing each.
	answerWait = 5 * time.Second
	// usualRunDir is where root's agent has its socket.
	usualRunDir = "/run/weir"
	// answerBytesMax is more than any answer has.
	answerBytesMax = 1 << 20
	// PreloadBytesMax is how much of an image's own /etc/ld.so.preload is taken over.
	PreloadBytesMax = 16 << 10
)

// Container is what is known of a container that is about to start. Empty fields are not known.
type Container struct {
	ID          string            `json:"id"`     // the runtime's own
	Bundle      string            `json:"bundle"` // names it uniquely as long as it is there
	PID         int               `json:"pid"`    // of its init, in the caller's pid namespace; 0: not there yet
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Pod         string            `json:"pod"`
	PodUID      string            `json:"pod_uid"`
	Image       string            `json:"image"`
	Command     []string          `json:"command"`     // for people
	Annotations map[string]string `json:"annotations"` // weir's
	HasGPU      bool              `json:"has_gpu"`
	AllDevices  bool              `json:"all_devices"` // see oci.Facts
	Root        string            `json:"root"`        // its root file system, an absolute path
	Preload     string            `json:"preload"`     // the image's own /etc/ld.so.preload
	FixedImage  bool              `json:"fixed_image"` // see oci.Grant
	ReadImage   bool              `json:"read_image"`  // see oci.Grant; Preload is then not known
	// Obstacle is why it cannot be given anything; empty: nothing is in the way. One that asks, or that would
	// get a grant, is refused for it.
	Obstacle string `json:"obstacle"`
	// Early: it may start much later, or never. It is kept until it is released.
	Early bool `json:"early"`
}

// Prepared is the answer: whether the container starts as it is (then Reason may say why it is not
// enforced), or with a grant. A refusal is an error.
type Prepared struct {
	SchemaVersion int        `json:"schema_version"`
	Reason        string     `json:"reason"`
	Grant         *oci.Grant `json:"grant"`
}

// Event says that a prepared container has got its init, or has ended. GrantID or Bundle names it.
type Event struct {
	GrantID string `json:"grant_id"`
	Bundle  string `json:"bundle"`
	PID     int    `json:"pid"`
	// Preload is the image's own /etc/ld.so.preload, where the grant has ReadImage; nil: not told.
	Preload *string `json:"preload"`
}

// Early are the containers that were prepared as Early ones and have not started: grants' ids by the
// runtime's.
type Early struct {
	SchemaVersion int               `json:"schema_version"`
	Grants        map[string]string `json:"grants"`
}

// Start is a container that was made and is about to run.
type Start struct {
	Container Container `json:"container"`
	// Mounted is what is mounted at oci.SocketPlace in it, a path of the host's; empty: nothing is.
	Mounted string `json:"mounted"`
}

// Refusal is an agent's no, with its reason: one line for the user.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

// ErrUnreachable is matched by errors that say that no agent answers.
var ErrUnreachable = errors.New("no agent answers")

// Unreachable says that no agent answers at a control socket, why, and what to do.
func Unreachable(socket string, why error) error {
	wayOut := "see the log of weir agent"
	if errors.Is(why, unix.ENOENT) || errors.Is(why, unix.ECONNREFUSED) {
		wayOut = "start one with: weir agent"
		if dir := filepath.Dir(socket); dir != usualRunDir {
			wayOut += " --run-dir " + dir
		}
	}
	return fmt.Errorf("%w at %s: %w; %s", ErrUnreachable, socket, why, wayOut)
}

// Client speaks with the agent at a control socket.
type Client struct{ Socket string }

// Prepare asks what becomes of a container. With its PID set it is registered, too. Asking twice for
// the same bundle gives the same grant.
func (c Client) Prepare(container Container) (Prepared, error) {
	var prepared Prepared
	err := c.call(PreparePath, container, &prepared)
	return prepared, err
}

// Register says that the init of a prepared container is there, in its cgroup.
func (c Client) Register(event Event) error { return c.call(RegisterPath, event, nil) }

// Release says that a container has ended. One that the agent does not know is none.
func (c Client) Release(event Event) error { return c.call(ReleasePath, event, nil) }

// Early asks which early containers have not started.
func (c Client) Early() (Early, error) {
	var early Early
	err := c.call(EarlyPath, struct{}{}, &early)
	return early, err
}

// Missed says that a container which concerns weir runs, and nobody has asked about it when it was made.
func (c Client) Missed(container Container) error { return c.call(MissedPath, container, nil) }

// Start asks whether a container that was made may run: whether it has what it was to be asked about for. Nothing is
// prepared by it. An error that is a *Refusal says why it must not.
func (c Client) Start(start Start) error { return c.call(StartPath, start, nil) }

func (c Client) call(path string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	// HTTP/1.0, which has no chunks and ends with the connection.
	text := "POST " + path + " HTTP/1.0\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + string(body)
	answer, err := c.exchange([]byte(text))
	if err != nil {
		return Unreachable(c.Socket, err)
	}
	return parseAnswer(answer, into)
}

// exchange sends a request and returns all that is answered.
func (c Client) exchange(request []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	conn := os.NewFile(uintptr(fd), c.Socket)
	defer conn.Close()
	wait := unix.NsecToTimeval(int64(answerWait))
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
			return nil, err
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: c.Socket}); err != nil {
		return nil, err
	}
	for len(request) > 0 {
		n, err := unix.Write(fd, request)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, late(err)
		}
		request = request[max(n, 0):]
	}
	var answer []byte
	room := make([]byte, 8<<10)
	for deadline := time.Now().Add(answerWait); ; {
		n, err := unix.Read(fd, room)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, late(err)
		case n == 0:
			return answer, nil
		default:
			answer = append(answer, room[:n]...)
		}
		if len(answer) > answerBytesMax || time.Now().After(deadline) {
			return nil, errors.New("it answers too much or too slowly")
		}
	}
}

// late says what a socket's own deadline means.
func late(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("no answer within %v", answerWait)
	}
	return err
}

// parseAnswer reads an answer of HTTP: a good one into a document, else the error that it has.
func parseAnswer(answer []byte, into any) error {
	head, body, found := strings.Cut(string(answer), "\r\n\r\n")
	status, _, _ := strings.Cut(head, "\r\n")
	fields := strings.Fields(status)
	if !found || len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return errors.New("what answers at the control socket is no agent of weir's")
	}
	if fields[1] != "200" {
		var refusal struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &refusal); err != nil || refusal.Error.Message == "" {
			return fmt.Errorf("the agent answers %.60q; is it of another version?", strings.Join(fields[1:], " "))
		}
		return &Refusal{refusal.Error.Message}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	return nil
}
