package node

// The agent's metrics, as a Prometheus gets them.

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Figures are what a scrape has told, by name and labels: see Of.
type Figures map[string]float64

// Of is a figure by its name and its labels in the order of their names, as `name a=1 b=2`; false where it is not there.
func (f Figures) Of(name string, labels ...string) (value float64, there bool) {
	value, there = f[strings.Join(append([]string{name}, labels...), " ")]
	return value, there
}

var metricsAt = regexp.MustCompile(`metrics at http://([^/]+)/metrics$`)

// MetricsAddress is where the agent serves metrics, by its ready line.
func (n *Node) MetricsAddress() string {
	n.t.Helper()
	at := metricsAt.FindStringSubmatch(n.ready)
	if at == nil {
		n.t.Fatalf("the agent has no metrics: %q", n.ready)
	}
	return at[1]
}

// Scrape gets the metrics of an agent that has them (metrics_listen), by the address that its ready line names. Of a
// summary there are NAME_sum and NAME_count.
func (n *Node) Scrape() Figures {
	n.t.Helper()
	response, err := http.Get("http://" + n.MetricsAddress() + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		n.t.Fatalf("a scrape: status %d", response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		n.t.Fatalf("a scrape cannot be read: %v", err)
	}
	figures := make(Figures)
	for name, family := range families {
		for _, m := range family.Metric {
			figures.take(name, m)
		}
	}
	return figures
}

func (f Figures) take(name string, m *dto.Metric) {
	labels := ""
	for _, l := range m.Label {
		if l.GetValue() != "" {
			labels += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
		}
	}
	switch {
	case m.Gauge != nil:
		f[name+labels] = m.Gauge.GetValue()
	case m.Counter != nil:
		f[name+labels] = m.Counter.GetValue()
	case m.Summary != nil:
		f[name+"_sum"+labels] = m.Summary.GetSampleSum()
		f[name+"_count"+labels] = float64(m.Summary.GetSampleCount())
	}
}
