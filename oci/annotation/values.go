package annotation

// The values of the annotations: what each accepts.

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/agent/config"
)

// Bounds of what can be asked for.
const (
	gpusMax    = 64   // GPUs of one container
	valueBytes = 4096 // more is no value
)

// kind is one annotation.
type kind struct {
	name string
	set  func(r *Request, value string) error
}

var kinds = []kind{
	{"memory", size(func(r *Request) **int64 { return &r.Memory })},
	{"swap", setSwap},
	{"weight", weight(func(r *Request) **float64 { return &r.Weight })},
	{"report", setReport},
	{"gpu", setGPUs},
	{"count", setCount},
	{"profile", setProfile},
	{"affinity", word(func(r *Request) *string { return &r.Affinity })},
	{"task", word(func(r *Request) *string { return &r.Task })},
	{"memory-min", size(func(r *Request) **int64 { return &r.MemoryMin })},
	{"memory-max", size(func(r *Request) **int64 { return &r.MemoryMax })},
	{"weight-min", weight(func(r *Request) **float64 { return &r.WeightMin })},
	{"weight-max", weight(func(r *Request) **float64 { return &r.WeightMax })},
}

var (
	profileForm = regexp.MustCompile(`^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb(?:[+-][a-z][a-z.]{0,15})*$`)
	wordForm    = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	indexForm   = regexp.MustCompile(`^(?:0|[1-9][0-9]{0,3})(?::(?:0|[1-9][0-9]?))?$`)
	uuidForm    = regexp.MustCompile(`^(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}$`)
)

// size makes a setter of a size above zero.
func size(field func(*Request) **int64) func(*Request, string) error {
	return func(r *Request, value string) error {
		bytes, err := config.ParseSize(value)
		if err != nil {
			return err
		}
		if bytes == 0 {
			return errors.New("0 is no size here: want one above it, such as 8GiB")
		}
		*field(r) = &bytes
		return nil
	}
}

func setSwap(r *Request, value string) error {
	bytes := int64(0)
	if value != "off" {
		var err error
		if bytes, err = config.ParseSize(value); err != nil {
			return fmt.Errorf("%w, or off", err)
		}
	}
	r.Swap = &bytes
	return nil
}

// weight makes a setter of a share of time.
func weight(field func(*Request) **float64) func(*Request, string) error {
	return func(r *Request, value string) error {
		number, err := config.ParseWeight(value)
		if err != nil {
			return err
		}
		*field(r) = &number
		return nil
	}
}

func setReport(r *Request, value string) error {
	if value != ReportCap && value != ReportVirtual {
		return fmt.Errorf("%.70q: want %s (the cap is shown as the total) or %s (cap and swap are)",
			value, ReportCap, ReportVirtual)
	}
	r.Report = value
	return nil
}

func setGPUs(r *Request, value string) error {
	const wanted = "auto, or indices or UUIDs (a beginning will do) with commas between, such as 0 or 0,1 or 1:0 or " +
		"GPU-5a3cb7e1 or MIG-9d2e4f60"
	if value == "" {
		return errEmpty(wanted)
	}
	if len(value) > valueBytes {
		return fmt.Errorf("%d bytes are too many: want %s", len(value), wanted)
	}
	var gpus []string
	for gpu := range strings.SplitSeq(value, ",") {
		gpu = strings.TrimSpace(gpu)
		switch {
		case gpu == Auto && value != Auto:
			return fmt.Errorf("%.70q: want auto alone, with weir/count for more than one, or GPUs by index or UUID", value)
		case gpu != Auto && !indexForm.MatchString(gpu) && !uuidForm.MatchString(gpu):
			return fmt.Errorf("%.70q is no GPU: want %s", gpu, wanted)
		case slices.Contains(gpus, gpu):
			return fmt.Errorf("%.70q is named twice: want each GPU once", gpu)
		case len(gpus) == gpusMax:
			return fmt.Errorf("it names too many GPUs: want at most %d", gpusMax)
		}
		gpus = append(gpus, gpu)
	}
	r.GPUs = gpus
	return nil
}

func setCount(r *Request, value string) error {
	count, err := strconv.ParseUint(value, 10, 16)
	if err != nil || count < 1 || count > gpusMax {
		return fmt.Errorf("%.70q is no number of GPUs: want one from 1 to %d", value, gpusMax)
	}
	r.Count = int(count)
	return nil
}

func setProfile(r *Request, value string) error {
	if !profileForm.MatchString(value) {
		return fmt.Errorf("%.70q is no profile of MIG instances: want one such as 1g.10gb or 1g.10gb+me", value)
	}
	r.Profile = value
	return nil
}

// word makes a setter of a label.
func word(field func(*Request) *string) func(*Request, string) error {
	return func(r *Request, value string) error {
		if !wordForm.MatchString(value) {
			return fmt.Errorf("%.70q: want a word of at most 63 letters, digits, dots, dashes and "+
				"underscores that begins and ends with a letter or digit", value)
		}
		*field(r) = value
		return nil
	}
}
