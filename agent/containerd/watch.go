package containerd

// Following a containerd: all is listed and told once, then what events say has changed.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"weir/agent/control/ociapi"
)

// Source is a containerd, as far as it is asked. All methods end with ctx.
type Source interface {
	// Subscribe sends the key of each container that an event is about, from a moment soon after it
	// has been called. It returns when there are no more.
	Subscribe(ctx context.Context, changed chan<- ociapi.Key) error
	// List is all containers of all namespaces.
	List(ctx context.Context) ([]Container, error)
	// Get is one container, or nil if there is none.
	Get(ctx context.Context, key ociapi.Key) (*Container, error)
}

// Agent is who is told; ociapi.Client is one.
type Agent interface {
	List(ociapi.Listing) (again bool, err error)
}

const (
	// listSoon is when all is listed once more, for what happened before containerd had taken the
	// subscription, and listSometimes how often after that, for events that it may have lost.
	listSoon      = time.Second
	listSometimes = 5 * time.Minute
	// queueMax is how many events may wait.
	queueMax = 1024
)

// Follow keeps the agent told of the containers of a containerd, to which connect connects; name is the
// containerd's, for people. It returns when ctx ends.
func Follow(ctx context.Context, log *slog.Logger, agent Agent, name string,
	connect func() (source Source, end func(), err error)) {
	Keep(ctx, log, func(ctx context.Context) error {
		source, end, err := connect()
		if err != nil {
			return err
		}
		defer end()
		t := &teller{agent: agent, runtime: name}
		err = t.watch(ctx, source)
		if t.generation != 0 && ctx.Err() == nil {
			// Where the agent cannot be told either, it will start another helper.
			_, _ = agent.List(ociapi.Listing{Runtime: name, Lost: err.Error()})
		}
		return fmt.Errorf("%s: %w", name, err)
	})
}

// watch tells the agent what containers there are until something breaks, and returns what did.
func (t *teller) watch(ctx context.Context, source Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, broken := make(chan ociapi.Key, queueMax), make(chan error, 1)
	go func() { broken <- source.Subscribe(ctx, changed) }()
	if err := t.listAll(ctx, source); err != nil {
		return err
	}
	again := time.NewTimer(listSoon)
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broken:
			return fmt.Errorf("following its events: %w", err)
		case <-again.C:
			again.Reset(listSometimes)
			err = t.listAll(ctx, source)
		case key := <-changed:
			err = t.look(ctx, source, waiting(key, changed))
		}
		if err != nil {
			return err
		}
	}
}

// waiting is the container that an event was about, and those of the events that wait behind it, each
// once.
func waiting(key ociapi.Key, changed <-chan ociapi.Key) []ociapi.Key {
	keys := []ociapi.Key{key}
	for range queueMax {
		select {
		case key = <-changed:
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		default:
			return keys
		}
	}
	return keys
}

// teller knows what the agent was told.
type teller struct {
	agent      Agent
	runtime    string
	generation uint64 // 0: nothing was told
	told       map[ociapi.Key]ociapi.Listed
}

// listAll tells how all containers differ from what was told.
func (t *teller) listAll(ctx context.Context, source Source) error {
	list, err := source.List(ctx)
	if err != nil {
		return fmt.Errorf("listing its containers: %w", err)
	}
	if len(list) > ociapi.ListedMax {
		return fmt.Errorf("it has %d containers, and %d is the most", len(list), ociapi.ListedMax)
	}
	all := make(map[ociapi.Key]ociapi.Listed, len(list))
	for _, c := range list {
		if listed, ok := Describe(c); ok {
			all[c.Key] = listed
		}
	}
	return t.tell(all)
}

// look tells how some containers differ from what was told.
func (t *teller) look(ctx context.Context, source Source, keys []ociapi.Key) error {
	all := maps.Clone(t.told)
	for _, key := range keys {
		delete(all, key)
		c, err := source.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("looking at container %s of namespace %s: %w", key.ID, key.Namespace, err)
		}
		if c == nil {
			continue
		}
		if listed, ok := Describe(*c); ok && len(all) < ociapi.ListedMax {
			all[key] = listed
		}
	}
	return t.tell(all)
}

// tell brings the agent from what it was told to all. If it does not know what the changes are to, as after
// a message that did not arrive, it is told everything.
func (t *teller) tell(all map[ociapi.Key]ociapi.Listed) error {
	again := true
	var err error
	if t.generation != 0 {
		if again, err = t.send(Changes(t.told, all)); err != nil {
			return err
		}
	}
	if again {
		t.generation = rand.Uint64() | 1
		if again, err = t.send(Whole(all)); err == nil && again {
			err = errors.New("it does not take what it is told")
		}
		if err != nil {
			return err
		}
	}
	t.told = all
	return nil
}

// send sends messages of one generation.
func (t *teller) send(messages []ociapi.Listing) (again bool, err error) {
	for _, m := range messages {
		m.Runtime, m.Generation = t.runtime, t.generation
		if again, err = t.agent.List(m); err != nil {
			return false, fmt.Errorf("telling the agent: %w", err)
		}
		if again {
			return true, nil
		}
	}
	return false, nil
}
