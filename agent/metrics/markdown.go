package metrics

// The page docs/METRICS.md, made from the families.

import (
	"fmt"
	"slices"
	"strings"
)

// intro is what the page says before the lists. Figures in it are those of the code.
const intro = `# Metrics

Made from the code by ` + "`make generate`" + `; do not edit.

The agent serves metrics for Prometheus at ` + "`%s`" + ` of the address that ` + "`metrics_listen`" + ` in weir.toml(5) names
(` + "`weir agent --metrics-listen 9400`" + `: port 9400 of 127.0.0.1). It serves none unless it is told to. There is no password:
whoever reaches the address reads the names of containers and what they use, and can change nothing.

- Sizes are bytes, times seconds, ratios parts of one. What is not known is not there. All counters begin anew with the agent.
- ` + "`container`, `namespace` and `pod`" + ` are those of weir-ps(1), cut to %d bytes, with ? for what cannot be printed. Of two
  containers that would have the same labels, the later one has ~ and its id's first letters behind its name. ` + "`gpu_uuid`" + ` is a
  card's or a MIG device's.
- Figures of a container on a GPU are there for GPUs that it uses. The series of a container that is gone are gone.
- There are metrics of the first %d containers; ` + "`%s`" + ` counts the others. A container has at most
  %d series, and %d more for each GPU that it uses.
- A scrape waits neither for containers nor for GPUs: where NVML takes longer than %v, what it would tell is left out.
- ` + "`go_*` and `process_*`" + ` are of the agent's own process, as the Prometheus library for Go has them.
`

// groups are the parts of the page: families whose names begin so and that have these labels at least.
var groups = []struct {
	title, prefix string
	labels        []string
}{
	{"Of the agent", "weir_agent_", nil},
	{"Of host memory", "weir_swap_", nil},
	{"Of events", "weir_events_", nil},
	{"Of a GPU", "weir_gpu_", []string{"gpu_uuid"}},
	{"Of a container", "weir_container_", ofContainer},
	{"Of a container on a GPU", "weir_container_", ofContainerOnGPU},
}

// Markdown is the page.
func Markdown() string {
	var page strings.Builder
	alone, each := seriesOfContainer()
	fmt.Fprintf(&page, intro, Path, labelBytesMax, containersMax, leftOut.name, alone, each, infoPatience)
	for _, group := range groups {
		fmt.Fprintf(&page, "\n## %s\n\n", group.title)
		if len(group.labels) > 0 {
			fmt.Fprintf(&page, "All with the labels %s.\n\n", listed(group.labels))
		}
		for _, f := range families {
			if more, in := f.within(group.prefix, group.labels); in {
				page.WriteString(wrap(f.line(more)))
			}
		}
	}
	page.WriteString("\n## Labels\n\n")
	for _, line := range []string{
		"- `by`: library, driver or empty, as ENFORCED in weir-ps(1)",
		"- `reason`: empty or one of " + strings.Join(reasons(), ", "),
		"- `direction`: in (to the GPU) or out (to the host)",
		"- `cause`: plan (the agent's) or fault (kernels' page faults, and what the driver makes room by)",
		"- `result`: undone, or late: it had begun",
		"- `state`: " + strings.Join(containerStates, ", ") + " of containers; " + strings.Join(sessionStates, ", ") + " of sessions",
		"- `type`: that of weir-events(1)",
	} {
		page.WriteString(wrap(line))
	}
	return page.String()
}

// within tells whether the family is of a group, and which labels it has beside that one's.
func (f *family) within(prefix string, labels []string) (more []string, in bool) {
	if !strings.HasPrefix(f.name, prefix) || len(f.labels) < len(labels) || !slices.Equal(f.labels[:len(labels)], labels) {
		return nil, false
	}
	more = f.labels[len(labels):]
	return more, slices.Contains(labels, "gpu_uuid") || !slices.Contains(more, "gpu_uuid")
}

// line describes the family.
func (f *family) line(more []string) string {
	with := ""
	if len(more) > 0 {
		with = " by " + listed(more)
	}
	return fmt.Sprintf("- `%s` (%s%s): %s", f.name, f.kind, with, f.help)
}

func listed(labels []string) string { return "`" + strings.Join(labels, "`, `") + "`" }

// lineMax is how long a line of the page may be.
const lineMax = 120

// wrap breaks an entry of a list into lines.
func wrap(entry string) string {
	var page strings.Builder
	length := 0
	for i, word := range strings.Fields(entry) {
		switch {
		case i > 0 && length+1+len(word) > lineMax:
			page.WriteString("\n  ")
			length = 2
		case i > 0:
			page.WriteString(" ")
			length++
		}
		page.WriteString(word)
		length += len(word)
	}
	return page.String() + "\n"
}
