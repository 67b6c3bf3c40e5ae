package metrics

// The server, and a source that hangs.

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"weir/agent/control"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves s until the test ends, and returns the address.
func serve(t *testing.T, s Source) string {
	t.Helper()
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, listener, s, quiet) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			conn.Close()
			t.Error("it still listens")
		}
	})
	return "http://" + listener.Addr().String()
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestServe(t *testing.T) {
	url := serve(t, sample())
	status, text := ask(t, http.MethodGet, url+Path)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, want := range []string{
		`weir_container_denials_total{container="trainer",namespace="team-a",pod="train-0"} 3`, "go_goroutines ", "process_cpu_seconds_total ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s", want)
		}
	}
	for _, one := range []struct {
		method, path string
		status       int
	}{{"POST", Path, 405}, {"GET", "/", 404}, {"GET", "/metrics/", 404}, {"GET", "/debug/pprof/", 404}, {"PUT", Path, 405}} {
		if status, _ := ask(t, one.method, url+one.path); status != one.status {
			t.Errorf("%s %s: %d, want %d", one.method, one.path, status, one.status)
		}
	}
}

func TestListenAtATakenAddress(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if second, err := Listen(listener.Addr().String()); err == nil || !strings.Contains(err.Error(), "metrics_listen") {
		second.Close()
		t.Errorf("%v", err)
	}
}

// An NVML that hangs costs what it would tell; containers are told all the same, one question is under way, and once it
// answers all is there again.
func TestInfoHangs(t *testing.T) {
	s := sample()
	asker := newInfoAsker(s)
	if _, err := asker.ask(time.Minute); err != nil {
		t.Fatal(err)
	}
	slow := make(chan struct{})
	s.mu.Lock()
	s.slow, s.asked = slow, 0
	s.mu.Unlock()
	for range 5 {
		info, err := asker.ask(time.Millisecond)
		if err != nil || info.Version != "1.2.3" || len(info.GPUs) != 2 || info.GPUs[0].UsedBytes != nil ||
			info.GPUs[0].UtilisationRatio != nil || info.GPUs[0].MemoryBytes != 24*gib {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	s.mu.Lock()
	asked := s.asked
	s.slow = nil
	s.agent.GPUs = []control.GPU{{UUID: "GPU-0", UsedBytes: ptr(gib)}}
	s.mu.Unlock()
	if asked > 1 {
		t.Errorf("%d questions under way", asked)
	}
	close(slow)
	if info, err := asker.ask(time.Minute); err != nil || info.GPUs[0].UsedBytes == nil {
		t.Errorf("%+v, %v", info, err)
	}
}

// One that hangs from the beginning: nothing is known of the agent, and all of containers.
func TestInfoHangsAtFirst(t *testing.T) {
	s := sample()
	s.slow = make(chan struct{})
	defer close(s.slow)
	if got := testutil.CollectAndCount(NewCollector(s, quiet), "weir_container_enforced", "weir_agent_info"); got != 3 {
		t.Errorf("%d", got)
	}
}
