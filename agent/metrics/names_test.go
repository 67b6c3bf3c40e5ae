package metrics

// What containers are called.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/agent/control"
)

func container(id, name string) control.Container {
	return control.Container{ID: id, Namespace: "n", Name: name, Identity: "cgroup", State: "running"}
}

// Of two containers of one name the later one has a part of its id added, for as long as it is there, whoever goes and
// comes.
func TestNamesOfTwins(t *testing.T) {
	first, second, third := container("111111111111aaaa", "web"), container("222222222222bbbb", "web"), container("333", "web~222222222222")
	var n names
	want := func(list []control.Container, names ...string) {
		t.Helper()
		given := n.name(list)
		for i := range list {
			if got := given[identityOf(&list[i])].name; got != names[i] {
				t.Errorf("%s is called %q, want %q", list[i].ID, got, names[i])
			}
		}
	}
	want([]control.Container{first, second}, "web", "web~222222222222")
	want([]control.Container{second}, "web~222222222222")
	want([]control.Container{third, second, first}, "web~222222222222~333", "web~222222222222", "web")
	want([]control.Container{third}, "web~222222222222~333")
	want(nil)
	want([]control.Container{third}, "web~222222222222")
}

func TestLabel(t *testing.T) {
	long := strings.Repeat("é", 200)
	for text, want := range map[string]string{
		"web": "web", "a\nb\x00c\x1b[31m": "a?b?c?[31m", "\xff\xfe": "?", "": "", "名前": "名前", long: long[:labelBytesMax],
		"x" + long: "x" + long[:labelBytesMax-2] + "?", "{}\"\\": "{}\"\\",
	} {
		if got := label(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Whatever containers are called, and however they come and go, a scrape succeeds, tells of each once, and none changes its
// labels.
func TestHostileNames(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"a", "~", "b", "\n", "\"", "\\", "\xff", "{", "é", "1", "=", "\x00", strings.Repeat("z", 200)}
	text := func(most int) (s string) {
		for range random.IntN(most + 1) {
			s += pieces[random.IntN(len(pieces))]
		}
		return s
	}
	s := sample()
	s.node.Containers, s.node.Flows = nil, nil
	r := registryOf(t, s)
	for range 200 {
		s.mu.Lock()
		if n := len(s.node.Containers); n > 0 && random.IntN(3) == 0 {
			at := random.IntN(n)
			s.node.Containers = append(s.node.Containers[:at:at], s.node.Containers[at+1:]...)
		} else {
			c := container(text(3), text(2))
			c.Pod, c.Namespace = text(1), text(1)
			s.node.Containers = append(s.node.Containers, c)
		}
		different := make(map[identity]bool)
		for i := range s.node.Containers {
			different[identityOf(&s.node.Containers[i])] = true
		}
		s.mu.Unlock()
		told := 0
		for key := range gather(t, r) {
			if strings.HasPrefix(key, "weir_container_weight ") {
				told++
			}
		}
		if told != len(different) {
			t.Fatalf("%d containers, %d told", len(different), told)
		}
	}
}

func TestNamesAreKept(t *testing.T) {
	var n names
	list := []control.Container{}
	for i := range 50 {
		list = append(list, container(fmt.Sprintf("%013d", i), "same"))
	}
	before := n.name(list)
	after := n.name(list[10:])
	for i := range list[10:] {
		id := identityOf(&list[10+i])
		if before[id] != after[id] {
			t.Errorf("%s was %v, is %v", id.id, before[id], after[id])
		}
	}
	if len(n.given) != 40 || len(n.taken) != 40 {
		t.Errorf("%d and %d are remembered", len(n.given), len(n.taken))
	}
}
