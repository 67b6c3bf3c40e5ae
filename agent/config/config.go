// The configuration file, weir.toml: strict, and every mistake in it is one line with file, line
// and key. Values of all sources are judged by Set alone.

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// fileBytesMax bounds what is read as a configuration file.
const fileBytesMax = 1 << 20

// Config is the agent's configuration, weir.toml. Every key has a flag of the same name (`-` for
// `_`) and an environment variable; a flag wins over the environment, that over the file.
type Config struct {
	RunDir    string        // sockets and credit records
	StateDir  string        // what survives a restart of the machine
	NVML      string        // the NVML library; empty: the system's
	AgentWait time.Duration // how long an allocation waits for an absent agent
	LogLevel  slog.Level
	// CountContext: contexts, code and limits count against the cap; else they are only shown.
	CountContext bool
	// EndUndeclared: a process that holds GPU memory which it has not declared is killed; else it is
	// only reported.
	EndUndeclared bool
	// PassIncompatible: a process whose library, driver or pages do not go with the agent runs without
	// a cap; else its allocations are refused.
	PassIncompatible bool
	// UnaskedGPU is what becomes of a container that a container runtime starts with a GPU and that
	// asked for nothing: UnaskedPass, UnaskedDefault or UnaskedRefuse.
	UnaskedGPU string
	// Containerd is the socket of the containerd that is asked which containers there are, or
	// ContainerdAuto or ContainerdOff.
	Containerd string
	// NoDriverLimit: the driver's own limits of containers are left alone; else they back the caps.
	NoDriverLimit bool
	// SwapHostLimit is the most host memory that swap may take, in bytes; nil: half of the machine's.
	SwapHostLimit *int64
	// MetricsListen is the address and port at which metrics are served; empty: they are not.
	MetricsListen string
	// Time is what there is to say of GPU time.
	Time Time
	// Rules are the [[containers]] tables, in their order.
	Rules []ContainerRule
}

// fileKeys is the file's form: what is not true or false is a string. All is judged by Set.
type fileKeys struct {
	RunDir       *string `toml:"run_dir"`
	StateDir     *string `toml:"state_dir"`
	NVML         *string `toml:"nvml"`
	AgentWait    *string `toml:"agent_wait"`
	LogLevel     *string `toml:"log_level"`
	CountContext *bool   `toml:"count_context"`
	Undeclared   *string `toml:"undeclared"`
	Incompatible *string `toml:"incompatible"`
	UnaskedGPU   *string `toml:"unasked_gpu"`
	Containerd   *string `toml:"containerd"`
	DriverLimit  *string `toml:"driver_limit"`
	SwapHost     *string `toml:"swap_host_limit"`
	Metrics      *string `toml:"metrics_listen"`

	timeKeys
	Containers []ruleKeys `toml:"containers"`
}

func (f *fileKeys) value(key string) *string {
	switch key {
	case "run_dir":
		return f.RunDir
	case "state_dir":
		return f.StateDir
	case "nvml":
		return f.NVML
	case "agent_wait":
		return f.AgentWait
	case "log_level":
		return f.LogLevel
	case "count_context":
		if f.CountContext != nil {
			text := strconv.FormatBool(*f.CountContext)
			return &text
		}
	case "undeclared":
		return f.Undeclared
	case "incompatible":
		return f.Incompatible
	case "unasked_gpu":
		return f.UnaskedGPU
	case "containerd":
		return f.Containerd
	case "driver_limit":
		return f.DriverLimit
	case "swap_host_limit":
		return f.SwapHost
	case "metrics_listen":
		return f.Metrics
	}
	return f.timeKeys.value(key)
}

// Key is one entry of the file, as it is called there, on the command line and in the environment.
type Key struct {
	Name, Flag, Env string
	want            string
}

// Keys lists all that weir.toml may hold.
var Keys = append([]Key{
	{"run_dir", "run-dir", "WEIR_RUN_DIR", `a directory in quotes, such as "/run/weir"`},
	{"state_dir", "state-dir", "WEIR_STATE_DIR", `a directory in quotes, such as "/var/lib/weir"`},
	{"nvml", "nvml", "WEIR_NVML", `a file in quotes, such as "/usr/lib/libnvidia-ml.so.1"`},
	{"agent_wait", "agent-wait", "WEIR_AGENT_WAIT", `a duration in quotes, such as "5s"`},
	{"log_level", "log-level", "WEIR_LOG_LEVEL", `"debug", "info", "warn" or "error"`},
	{"count_context", "count-context", "WEIR_COUNT_CONTEXT", "true or false, without quotes"},
	{"undeclared", "undeclared", "WEIR_UNDECLARED", `"report" or "end"`},
	{"incompatible", "incompatible", "WEIR_INCOMPATIBLE", `"refuse" or "pass"`},
	{"unasked_gpu", "unasked-gpu", "WEIR_UNASKED_GPU", `"pass", "default" or "refuse"`},
	{"containerd", "containerd", "WEIR_CONTAINERD", `"auto", "off" or a socket in quotes`},
	{"driver_limit", "driver-limit", "WEIR_DRIVER_LIMIT", `"auto" or "off"`},
	{"swap_host_limit", "swap-host-limit", "WEIR_SWAP_HOST_LIMIT", `"half" or a size in quotes, such as "64GiB"`},
	{"metrics_listen", "metrics-listen", "WEIR_METRICS_LISTEN", `"off", or an address in quotes, such as "127.0.0.1:9400"`},
}, timeKeyList...)

// Default is the configuration of an agent that this user starts and says nothing more of.
func Default(u User) Config {
	return Config{
		RunDir:       u.RunDir(),
		StateDir:     u.StateDir(),
		AgentWait:    5 * time.Second,
		LogLevel:     slog.LevelInfo,
		CountContext: true,
		UnaskedGPU:   UnaskedPass,
		Containerd:   ContainerdAuto,
		Time:         DefaultTime(),
	}
}

// ReadFile puts what the file says over c. The error of a bad file is one line with file, line
// and key; that of a missing one wraps os.ErrNotExist.
func (c *Config) ReadFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if len(text) > fileBytesMax {
		return fmt.Errorf("%s: more than 1MiB is no configuration file", path)
	}
	var keys fileKeys
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&keys); err != nil {
		return describe(path, err)
	}
	for _, key := range Keys {
		value := keys.value(key.Name)
		if value == nil {
			continue
		}
		if err := c.Set(key.Name, *value); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", path, lineOf(text, key.Name), key.Name, err)
		}
	}
	rules, line, key, err := readRules(text, keys.Containers)
	if err != nil {
		return fmt.Errorf("%s:%d: containers: %s: %w", path, line, key, err)
	}
	c.Rules = rules
	return nil
}

// lineOf finds the first time that a key is set.
func lineOf(text []byte, key string) int {
	at := regexp.MustCompile(`(?m)^[ \t]*["']?` + key + `["']?[ \t]*=`).FindIndex(text)
	if at == nil {
		return 1
	}
	return 1 + bytes.Count(text[:at[0]], []byte{'\n'})
}

// Set gives one key a value, as the file, the environment or a flag writes it.
func (c *Config) Set(key, value string) (err error) {
	switch key {
	case "run_dir":
		c.RunDir, err = parseDir(value)
	case "state_dir":
		c.StateDir, err = parseDir(value)
	case "nvml":
		c.NVML = value
	case "agent_wait":
		c.AgentWait, err = ParseDuration(value)
	case "log_level":
		c.LogLevel, err = parseLevel(value)
	case "count_context":
		c.CountContext, err = parseChoice(value, "false", "true")
	case "undeclared":
		c.EndUndeclared, err = parseChoice(value, "report", "end")
	case "incompatible":
		c.PassIncompatible, err = parseChoice(value, "refuse", "pass")
	case "unasked_gpu":
		if value != UnaskedPass && value != UnaskedDefault && value != UnaskedRefuse {
			return fmt.Errorf("%.70q: want %s, %s or %s", value, UnaskedPass, UnaskedDefault, UnaskedRefuse)
		}
		c.UnaskedGPU = value
	case "containerd":
		if value != ContainerdAuto && value != ContainerdOff && !filepath.IsAbs(value) {
			return fmt.Errorf("%.70q: want %s, %s or the absolute path of a socket", value, ContainerdAuto, ContainerdOff)
		}
		c.Containerd = value
	case "driver_limit":
		c.NoDriverLimit, err = parseChoice(value, "auto", "off")
	case "swap_host_limit":
		c.SwapHostLimit, err = parseHostLimit(value)
	case "metrics_listen":
		c.MetricsListen, err = parseMetricsListen(value)
	default:
		known, err := c.Time.set(key, value)
		if !known {
			return fmt.Errorf("unknown key %q", key)
		}
		return err
	}
	return err
}

// describe turns the decoder's error into one line: file, line, key, what is wanted.
func describe(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, _ := first.Position()
		names := make([]string, 0, len(Keys))
		for _, key := range Keys {
			names = append(names, key.Name)
		}
		names = append(names, "tables [[containers]] of namespace, image, memory, memory_max, swap, "+
			"swap_max, weight, weight_max")
		return fmt.Errorf("%s:%d: unknown key %q; accepted: %s", path, line,
			strings.Join(first.Key(), "."), strings.Join(names, ", "))
	}
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return fmt.Errorf("%s: %w", path, err)
	}
	line, _ := decode.Position()
	reason := strings.TrimPrefix(decode.Error(), "toml: ")
	name := strings.Join(decode.Key(), ".")
	if name == "" {
		return fmt.Errorf("%s:%d: %s", path, line, reason)
	}
	if strings.HasPrefix(reason, "cannot decode") {
		for _, key := range Keys {
			if key.Name == name {
				reason = "want " + key.want
			}
		}
		if key, ok := strings.CutPrefix(name, "containers."); ok {
			name, reason = "containers: "+key, "want "+wantOfRule(key)
		}
	}
	return fmt.Errorf("%s:%d: %s: %s", path, line, name, reason)
}

// ParseDuration reads a span above zero: "30s", "10m", "1h30m". A bare number is refused, because
// nobody can tell its unit.
func ParseDuration(text string) (time.Duration, error) {
	span, err := time.ParseDuration(text)
	if err != nil || span <= 0 {
		return 0, fmt.Errorf("%.70q is not a duration: want one with its unit, such as 30s or 10m", text)
	}
	return span, nil
}

// parseHostLimit reads a size; nil is half of the machine's memory.
func parseHostLimit(value string) (*int64, error) {
	if value == "half" {
		return nil, nil
	}
	bytes, err := ParseSize(value)
	if err != nil {
		return nil, fmt.Errorf("%w, or half: of the machine's memory", err)
	}
	return &bytes, nil
}

// parseChoice tells which of two words a value is.
func parseChoice(value, no, yes string) (bool, error) {
	if value != no && value != yes {
		return false, fmt.Errorf("%.70q: want %s or %s", value, yes, no)
	}
	return value == yes, nil
}

// parseLevel accepts slog's four names in any case.
func parseLevel(text string) (slog.Level, error) {
	for _, level := range []slog.Level{
		slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError,
	} {
		if strings.EqualFold(level.String(), text) {
			return level, nil
		}
	}
	return 0, fmt.Errorf("%.70q is no log level: want debug, info, warn or error", text)
}
