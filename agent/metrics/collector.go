package metrics

// The collector: one survey of the node becomes metrics.

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/agent/control"
)

const (
	// containersMax is of how many containers there are metrics: those that began first, and of which weir is part.
	containersMax = 1000
	// infoPatience is how long a scrape waits for what NVML tells of GPUs; it does without them then.
	infoPatience = time.Second
)

// Source is what is asked at each scrape. Survey waits for nobody; Info may take long, as NVML does.
type Source interface {
	Info(ctx context.Context) (control.AgentInfo, error)
	Survey(ctx context.Context) (control.Survey, error)
}

// Collector makes metrics of what a Source tells. It is a prometheus.Collector.
type Collector struct {
	source Source
	log    *slog.Logger
	info   *infoAsker

	mu    sync.Mutex
	names names
}

// NewCollector makes one. It asks for nothing before the first scrape.
func NewCollector(source Source, log *slog.Logger) *Collector {
	return &Collector{source: source, log: log, info: newInfoAsker(source)}
}

// Describe tells of all families.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range families {
		out <- f.desc
	}
}

// Collect asks once and tells all. What cannot be told is left out, and logged.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := scrape{out: out, log: c.log}
	if info, err := c.info.ask(infoPatience); err != nil {
		c.log.Warn("metrics without what the agent tells of itself and of its GPUs", "error", err)
	} else {
		s.agent(&info)
	}
	survey, err := c.source.Survey(context.Background())
	if err != nil {
		c.log.Warn("metrics without containers", "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.survey(&survey, &c.names)
}

// scrape is one collection under way.
type scrape struct {
	out chan<- prometheus.Metric
	log *slog.Logger
}

// tell tells one figure.
func (s *scrape) tell(f *family, value float64, labels ...string) {
	t := prometheus.GaugeValue
	if f.kind == counter {
		t = prometheus.CounterValue
	}
	s.send(prometheus.NewConstMetric(f.desc, t, value, labels...))
}

// summarise tells a sum of seconds, given in ns, and of how many it is one.
func (s *scrape) summarise(f *family, count, ns int64, labels ...string) {
	s.send(prometheus.NewConstSummary(f.desc, uint64(count), seconds(ns), nil, labels...))
}

func (s *scrape) send(m prometheus.Metric, err error) {
	if err != nil {
		s.log.Error("a metric could not be made", "error", err)
		return
	}
	s.out <- m
}

// tellBytes tells a size, if it is known.
func (s *scrape) tellBytes(f *family, bytes *int64, labels ...string) {
	if bytes != nil {
		s.tell(f, float64(*bytes), labels...)
	}
}

func (s *scrape) tellRatio(f *family, ratio *float64, labels ...string) {
	if ratio != nil {
		s.tell(f, *ratio, labels...)
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// agent tells of the agent and of its GPUs.
func (s *scrape) agent(info *control.AgentInfo) {
	s.tell(agentInfo, 1, label(info.Version), strconv.Itoa(info.ABI), label(info.Driver))
	s.tell(agentStarted, unix(info.Started))
	s.tell(timeShared, truth(info.TimeShared))
	s.tell(hostLimit, float64(info.SwapHostLimitBytes))
	s.tell(hostReserved, float64(info.SwapHostBytes))
	for i := range info.GPUs {
		g := &info.GPUs[i]
		s.tell(gpuInfo, 1, g.UUID, control.GPUName(g.Index, g.MIG), label(g.Name), strconv.FormatBool(g.Simulated))
		s.tell(gpuMemory, float64(g.MemoryBytes), g.UUID)
		s.tellBytes(gpuUsed, g.UsedBytes, g.UUID)
		s.tellRatio(gpuUtilisation, g.UtilisationRatio, g.UUID)
		s.tellBytes(gpuLink, g.LinkInBytesPerSecond, g.UUID, "in")
		s.tellBytes(gpuLink, g.LinkOutBytesPerSecond, g.UUID, "out")
	}
}
