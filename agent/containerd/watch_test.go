package containerd

// Tests of following a containerd, with one and an agent in memory, on a clock of the test's own.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/agent/control/ociapi"
)

// daemon is a containerd in memory.
type daemon struct {
	mu     sync.Mutex
	all    map[ociapi.Key]Container
	down   error // what every call returns
	events chan ociapi.Key
	broken chan error // ends a subscription
	lists  int
}

func newDaemon() *daemon {
	return &daemon{all: map[ociapi.Key]Container{}, events: make(chan ociapi.Key, 100), broken: make(chan error)}
}

func (d *daemon) Subscribe(ctx context.Context, changed chan<- ociapi.Key) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-d.broken:
			return err
		case key := <-d.events:
			changed <- key
		}
	}
}

func (d *daemon) List(context.Context) (list []Container, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists++
	for _, c := range d.all {
		list = append(list, c)
	}
	return list, d.down
}

func (d *daemon) Get(_ context.Context, key ociapi.Key) (*Container, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, there := d.all[key]; there && d.down == nil {
		return &c, nil
	}
	return nil, d.down
}

// set makes or changes a container, or removes one without spec; told says whether by an event.
func (d *daemon) set(c Container, told bool) {
	d.mu.Lock()
	d.all[c.Key] = c
	if c.Spec == nil {
		delete(d.all, c.Key)
	}
	d.mu.Unlock()
	if told {
		d.events <- c.Key
	}
}

// agent is one that keeps what it is told.
type agent struct {
	mu         sync.Mutex
	generation uint64
	all, next  map[ociapi.Key]ociapi.Listed
	messages   []ociapi.Listing
	down       error
}

func (a *agent) List(m ociapi.Listing) (again bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return false, a.down
	}
	a.messages = append(a.messages, m)
	if size := len(encodeListing(m)); size > 64<<10 {
		return false, fmt.Errorf("a message of %d bytes", size)
	}
	switch {
	case m.Lost != "":
		a.generation = 0
		return false, nil
	case m.Begin:
		a.generation, a.next = m.Generation, map[ociapi.Key]ociapi.Listed{}
	case m.Generation != a.generation:
		return true, nil
	}
	into := a.all
	if a.next != nil {
		into = a.next
	}
	for _, key := range m.Gone {
		delete(into, key)
	}
	for _, c := range m.Containers {
		into[c.Key] = c
	}
	if m.End {
		a.all, a.next = a.next, nil
	}
	return false, nil
}

func encodeListing(m ociapi.Listing) (text string) {
	for _, c := range m.Containers {
		text += encode(c)
	}
	return text
}

// knows compares what the agent was told with what there is.
func (a *agent) knows(d *daemon) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	want := map[ociapi.Key]ociapi.Listed{}
	for key, c := range d.all {
		if listed, ok := Describe(c); ok {
			want[key] = listed
		}
	}
	return cmp.Diff(want, a.all)
}

func box(id, image string, pid int) Container {
	c := Container{Key: ociapi.Key{Namespace: "default", ID: id}, Image: image, Spec: []byte(`{}`)}
	if pid > 0 {
		c.Task = &Task{pid, true}
	}
	return c
}

var silent = slog.New(slog.DiscardHandler)

// follow has an agent follow a containerd until the test's end.
func follow(t *testing.T, d *daemon, a *agent) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Follow(ctx, silent, a, "containerd at /c.sock", func() (Source, func(), error) { return d, func() {}, nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func TestOnlyChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := newDaemon(), &agent{}
		d.set(box("one", "i:1", 5), false)
		follow(t, d, a)
		synctest.Wait()
		time.Sleep(2 * listSoon)
		d.set(box("two", "i:2", 0), true)
		synctest.Wait()
		d.set(box("two", "i:2", 7), true)
		d.events <- ociapi.Key{Namespace: "default", ID: "one"} // of which nothing has changed
		synctest.Wait()
		d.set(Container{Key: ociapi.Key{Namespace: "default", ID: "one"}}, true)
		synctest.Wait()
		if diff := a.knows(d); diff != "" {
			t.Error(diff)
		}
		var told []string
		for _, m := range a.messages {
			text := fmt.Sprintf("begin=%t end=%t", m.Begin, m.End)
			for _, c := range m.Containers {
				text += fmt.Sprintf(" %s:%d", c.ID, c.PID)
			}
			for _, key := range m.Gone {
				text += " -" + key.ID
			}
			told = append(told, text)
		}
		want := []string{"begin=true end=true one:5", "begin=false end=false two:0", "begin=false end=false two:7",
			"begin=false end=false -one"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}

// What happens before containerd has taken the subscription is found by the second listing.
func TestUnheardChangesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := newDaemon(), &agent{}
		follow(t, d, a)
		synctest.Wait()
		d.set(box("early", "i", 5), false)
		time.Sleep(listSoon)
		synctest.Wait()
		if diff := a.knows(d); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRestartOfContainerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := newDaemon(), &agent{}
		d.set(box("stays", "i", 5), false)
		d.set(box("ends", "i", 6), false)
		follow(t, d, a)
		synctest.Wait()
		d.mu.Lock()
		d.down = errors.New("connection refused")
		d.mu.Unlock()
		d.broken <- errors.New("the stream has ended")
		time.Sleep(time.Minute)
		losses := 0
		for _, m := range a.messages {
			if m.Lost != "" {
				losses++
				if !strings.Contains(m.Lost, "following its events: the stream has ended") {
					t.Error(m.Lost)
				}
			}
		}
		if losses != 1 {
			t.Errorf("its loss was told %d times", losses)
		}
		d.set(Container{Key: ociapi.Key{Namespace: "default", ID: "ends"}}, false)
		d.mu.Lock()
		d.down = nil
		d.mu.Unlock()
		time.Sleep(time.Second) // that soon after it is there again
		synctest.Wait()
		if diff := a.knows(d); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTooManyContainers(t *testing.T) {
	d, a := newDaemon(), &agent{}
	for i := range ociapi.ListedMax + 1 {
		d.set(box(fmt.Sprint("c", i), "i", 0), false)
	}
	err := (&teller{agent: a}).listAll(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), "it has 4097 containers, and 4096 is the most") || len(a.messages) > 0 {
		t.Errorf("%v, %d messages", err, len(a.messages))
	}
}

// Whatever happens, with or without an event, and whatever the agent forgets: after the next listing it
// knows exactly what there is, and no message was too long for it.
func TestAgentKnows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, a := newDaemon(), &agent{}
		tell := &teller{agent: a, runtime: "r"}
		if err := tell.listAll(context.Background(), d); err != nil {
			t.Fatal(err)
		}
		heard := map[ociapi.Key]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.StringMatching("[a-j]").Draw(t, "id")
			switch step := rapid.SampledFrom([]string{"run", "label", "remove", "hear", "forget", "list", "fail"}).Draw(t, "step"); step {
			case "run":
				d.set(box(id, "i", rapid.IntRange(0, 3).Draw(t, "pid")), false)
				heard[ociapi.Key{Namespace: "default", ID: id}] = true
			case "label":
				c := box(id, "i", 0)
				c.Labels = map[string]string{}
				length := rapid.IntRange(0, 600).Draw(t, "length")
				for i := range rapid.SampledFrom([]int{0, 1, 80}).Draw(t, "labels") {
					c.Labels[fmt.Sprint(i)] = strings.Repeat("<", length)
				}
				d.set(c, false)
			case "remove":
				d.set(Container{Key: ociapi.Key{Namespace: "default", ID: id}}, false)
			case "forget":
				a.generation = 0
			case "fail":
				a.down = errors.New("away")
				_ = tell.listAll(context.Background(), d)
				a.down = nil
			case "hear":
				keys := []ociapi.Key{}
				for key := range heard {
					keys = append(keys, key)
				}
				clear(heard)
				if err := tell.look(context.Background(), d, keys); err != nil {
					t.Fatal(err)
				}
			case "list":
				if err := tell.listAll(context.Background(), d); err != nil {
					t.Fatal(err)
				}
				if diff := a.knows(d); diff != "" {
					t.Fatal(diff)
				}
			}
		}
		if err := tell.listAll(context.Background(), d); err != nil {
			t.Fatal(err)
		}
		if diff := a.knows(d); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestChangesOfNothing(t *testing.T) {
	all := map[ociapi.Key]ociapi.Listed{{ID: "a"}: {Key: ociapi.Key{ID: "a"}, Labels: map[string]string{"x": "y"}}}
	if messages := Changes(all, maps.Clone(all)); len(messages) != 0 {
		t.Errorf("%+v", messages)
	}
	if messages := Whole(nil); len(messages) != 1 || !messages[0].Begin || !messages[0].End {
		t.Errorf("%+v", messages)
	}
}

func TestKeepBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var log strings.Builder
		tries := 0
		Keep(ctx, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
			tries++
			return errors.New("no")
		})
		if tries < 100 || tries > 130 || strings.Count(log.String(), "error=no") != 1 {
			t.Errorf("%d tries\n%s", tries, log.String())
		}
	})
}
