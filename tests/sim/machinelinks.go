// The keys of a machine file that say how cards are connected.

package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// nvlinksMax is how many links one card has at most, and pcieDepth how many places a path.
const (
	nvlinksMax = 18
	pcieDepth  = 4
)

const nvlinkWanted = "[[nvlink]] tables with gpus and links"

// nvlinkTable is one [[nvlink]] table.
type nvlinkTable = NVLink

var nvlinkKeys = []key[nvlinkTable]{
	{name: "gpus", wanted: linkedWanted, set: setLinked},
	number("links", 1, nvlinksMax, func(l *nvlinkTable, n int64) { l.Links = int(n) }),
}

const linkedWanted = "two GPUs or more, such as [0, 1]; each two of them are linked"

func setLinked(l *nvlinkTable, value any) error {
	list, _ := value.([]any)
	seen := map[int64]bool{}
	for _, entry := range list {
		gpu, isInteger := entry.(int64)
		if !isInteger || gpu < 0 || gpu >= GPUsMax || seen[gpu] {
			return fmt.Errorf("%s is not %s", given(value), linkedWanted)
		}
		seen[gpu] = true
		l.GPUs = append(l.GPUs, int(gpu))
	}
	if len(list) < 2 {
		return fmt.Errorf("%s is not %s", given(value), linkedWanted)
	}
	return nil
}

// nvlinks reads the [[nvlink]] tables.
func (r *reader) nvlinks(machine *Machine, value any) {
	tables, isList := value.([]any)
	if value != nil && !isList {
		r.mistake("", "nvlink", "want %s", nvlinkWanted)
		return
	}
	for i, entry := range tables {
		table := fmt.Sprintf("nvlink[%d]", i)
		values, isTable := entry.(map[string]any)
		if !isTable {
			r.mistake("", "nvlink", "want %s", nvlinkWanted)
			return
		}
		var link NVLink
		readKeys(r, table, nvlinkKeys, &link, values)
		machine.NVLinks = append(machine.NVLinks, link)
		for gpu, links := range machine.linksOfEach() {
			switch {
			case links > 0 && gpu >= len(machine.GPUs) && len(machine.GPUs) > 0:
				r.mistake(table, "gpus", "there is no GPU %d; the machine has %d", gpu,
					len(machine.GPUs))
				return
			case links > nvlinksMax:
				r.mistake(table, "links", "GPU %d would have %d links; a card has at most %d", gpu,
					links, nvlinksMax)
				return
			}
		}
	}
}

// linksBetween is how many links there are between two GPUs.
func (m *Machine) linksBetween() (links [GPUsMax][GPUsMax]int) {
	for _, some := range m.NVLinks {
		for _, a := range some.GPUs {
			for _, b := range some.GPUs {
				if a != b {
					links[a][b] += some.Links
				}
			}
		}
	}
	return links
}

// linksOfEach counts the links of each GPU.
func (m *Machine) linksOfEach() (of [GPUsMax]int) {
	for gpu, others := range m.linksBetween() {
		for _, links := range others {
			of[gpu] += links
		}
	}
	return of
}

const pathWanted = `a path such as "0/1": the host bridge's number, then those of the switches ` +
	`below it, or a list with one a GPU`

func setPaths(g *gpuTable, value any) error {
	list, isList := value.([]any)
	if !isList {
		path, err := parsePath(value)
		g.PCIePath = path
		return err
	}
	g.pciePaths = make([][]uint8, 0, len(list))
	for _, entry := range list {
		path, err := parsePath(entry)
		if err != nil {
			return err
		}
		g.pciePaths = append(g.pciePaths, path)
	}
	return nil
}

// parsePath reads a path. A switch is never number 0, which ends a path in the machine.
func parsePath(value any) ([]uint8, error) {
	text, _ := value.(string)
	parts := strings.Split(text, "/")
	var path []uint8
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 8)
		if err != nil || (i > 0 && number == 0) || len(parts) > pcieDepth {
			return nil, fmt.Errorf("%s is not %s; switches count from 1, at most %d of them",
				given(value), pathWanted, pcieDepth-1)
		}
		path = append(path, uint8(number))
	}
	return path, nil
}
