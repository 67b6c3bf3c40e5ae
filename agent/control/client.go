// The commands' end of the API. Invariants: every call has a deadline, every failure to reach an
// agent is an *UnreachableError, and an agent of another user is not trusted.

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Client asks the agent at one socket. Its methods return the Node's sentinel errors, ErrPermission
// where the socket may not be used, and an *UnreachableError where nobody answers.
type Client struct {
	socket string
	limit  time.Duration // for an answer that does not wait for anything
	ask    http.Client   // for questions: root may ask any agent
	load   http.Client   // for grants, which name a library to load
}

// NewClient makes a client of the agent at socket; it connects at the first call.
func NewClient(socket string) *Client {
	c := &Client{socket: socket, limit: requestTimeMax}
	c.ask = c.httpClient(os.Geteuid() == 0)
	c.load = c.httpClient(false)
	return c
}

// Socket is where this client looks for the agent.
func (c *Client) Socket() string { return c.socket }

func (c *Client) httpClient(anyAgent bool) http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, anyAgent) }
	return http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects and looks who listens. Unless anyAgent is set, that must be the caller's own agent
// or root's: another's could have the caller load any library.
func (c *Client) dial(ctx context.Context, anyAgent bool) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeMax}
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, err
	}
	listener, err := peerOf(conn.(*net.UnixConn))
	if err != nil {
		conn.Close()
		return nil, err
	}
	me := uint32(os.Geteuid())
	if listener.uid != me && listener.uid != 0 && !anyAgent {
		conn.Close()
		return nil, fmt.Errorf("%w: the agent at %s is uid %d's, and uid %d trusts only its own and "+
			"root's", ErrPermission, c.socket, listener.uid, me)
	}
	return conn, nil
}

// Info asks what the agent is and which GPUs it has.
func (c *Client) Info(ctx context.Context) (AgentInfo, error) {
	var doc InfoDoc
	err := c.call(ctx, http.MethodGet, "/v1/info", nil, &doc)
	return doc.AgentInfo, err
}

// Containers asks for all containers.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	var doc ContainersDoc
	err := c.call(ctx, http.MethodGet, "/v1/containers", nil, &doc)
	return doc.Containers, err
}

// Container asks for the one that ref names.
func (c *Client) Container(ctx context.Context, ref string) (Container, error) {
	var doc ContainerDoc
	path, err := pathOf("/v1/containers/", ref, "")
	if err == nil {
		err = c.call(ctx, http.MethodGet, path, nil, &doc)
	}
	return doc.Container, err
}

// StartRun makes the calling process a container.
func (c *Client) StartRun(ctx context.Context, request RunRequest) (RunGrant, error) {
	var doc RunDoc
	err := c.exchange(ctx, &c.load, c.limit, http.MethodPost, "/v1/runs", request, &doc)
	return doc.RunGrant, err
}

// EndRun ends the container that StartRun made.
func (c *Client) EndRun(ctx context.Context, id string) error {
	path, err := pathOf("/v1/runs/", id, "")
	if err == nil {
		var doc struct{}
		err = c.call(ctx, http.MethodDelete, path, nil, &doc)
	}
	return err
}

// ChangeCaps changes the caps of the container that ref names, or with DryRun says what would be.
func (c *Client) ChangeCaps(
	ctx context.Context, ref string, change CapsChange,
) (CapsResult, error) {
	var doc CapsDoc
	path, err := pathOf("/v1/containers/", ref, "/caps")
	if err == nil {
		err = c.call(ctx, http.MethodPatch, path, change, &doc)
	}
	return doc.CapsResult, err
}

// Queue asks for the flows of all containers.
func (c *Client) Queue(ctx context.Context) ([]Flow, error) {
	var doc QueueDoc
	err := c.call(ctx, http.MethodGet, "/v1/queue", nil, &doc)
	return doc.Flows, err
}

// Events asks for those after seq (0: all kept). With wait above zero the answer is held back for
// that long, a minute at most, until there is one; it may be empty then.
func (c *Client) Events(ctx context.Context, after uint64, wait time.Duration) (EventsDoc, error) {
	query := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	var doc EventsDoc
	limit, path := c.limit+min(wait, waitTimeMax), "/v1/events?"+query.Encode()
	err := c.exchange(ctx, &c.ask, limit, http.MethodGet, path, nil, &doc)
	return doc, err
}

// pathOf puts a name into a path. "." and ".." would be taken for steps in it.
func pathOf(before, name, after string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", fmt.Errorf("container %q: %w", name, ErrNotFound)
	}
	return before + url.PathEscape(name) + after, nil
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	return c.exchange(ctx, &c.ask, c.limit, method, path, body, into)
}

// exchange sends one request and reads its answer, for at most limit.
func (c *Client) exchange(
	ctx context.Context, client *http.Client, limit time.Duration, method, path string, body, into any,
) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		if len(text) > requestBytesMax {
			return fmt.Errorf("%w: a request of %d bytes: at most %d", ErrInvalid, len(text),
				requestBytesMax)
		}
		payload = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(limited, method, "http://weir"+path, payload)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return c.failed(ctx, limit, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return c.failed(ctx, limit, err)
	}
	return c.decode(response.StatusCode, text, into)
}

// decode reads an answer. One that is not of this API comes of an agent of another version.
func (c *Client) decode(status int, text []byte, into any) error {
	var head struct {
		SchemaVersion int        `json:"schema_version"`
		Error         *errorBody `json:"error"`
	}
	if err := json.Unmarshal(text, &head); err != nil || head.SchemaVersion == 0 {
		return fmt.Errorf("the agent at %s gave an answer (status %d) that is none of this version's: "+
			"compare `weir version` with the agent's", c.socket, status)
	}
	if head.SchemaVersion != SchemaVersion {
		return fmt.Errorf("the agent at %s speaks schema %d, this command %d: use the weir that "+
			"started the agent", c.socket, head.SchemaVersion, SchemaVersion)
	}
	if head.Error != nil {
		return errorOf(*head.Error)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}

// failed says why no answer came. The caller's own end of waiting is passed on as it is.
func (c *Client) failed(ctx context.Context, limit time.Duration, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without method and made-up address
	}
	if errors.Is(err, ErrPermission) {
		return err
	}
	var call syscall.Errno
	switch {
	case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: %s is another user's agent: run as that user or root, "+
			"or start your own with: weir agent", ErrPermission, c.socket)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("it did not answer within %v", limit)
	case errors.Is(err, io.EOF):
		err = errors.New("it closed the connection")
	case errors.As(err, &call):
		err = call
	}
	return &UnreachableError{c.socket, err}
}
