package metrics

// What a scrape costs.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/agent/control"
)

// BenchmarkScrape is a scrape of 500 containers that use one of two GPUs, with swap and leases: up to 50 ms are promised.
func BenchmarkScrape(b *testing.B) {
	s := sample()
	one, flow := s.node.Containers[0], s.node.Flows[0]
	s.node.Containers, s.node.Flows = nil, nil
	for i := range 500 {
		one.ID = fmt.Sprintf("%016d", i)
		one.Name, flow.ContainerID = fmt.Sprintf("trainer-%d", i), one.ID
		one.GPUs = append([]control.GPUUse(nil), one.GPUs...)
		s.node.Containers, s.node.Flows = append(s.node.Containers, one), append(s.node.Flows, flow)
	}
	h := handler(s, quiet)
	bytes := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, nil))
		bytes = w.Body.Len()
	}
	b.ReportMetric(float64(bytes), "bytes")
}
