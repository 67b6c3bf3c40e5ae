package config

// Where metrics are served, as the configuration says it.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMetricsListen(t *testing.T) {
	for value, want := range map[string]string{
		"off": "", "9400": "127.0.0.1:9400", ":9400": "127.0.0.1:9400", "localhost:9400": "127.0.0.1:9400",
		"127.0.0.1:0": "127.0.0.1:0", "[::1]:9400": "[::1]:9400", "0.0.0.0:9400": "0.0.0.0:9400", "[::]:1": "[::]:1",
		"10.1.2.3:65535": "10.1.2.3:65535",
	} {
		c := Default(User{})
		if err := c.Set("metrics_listen", value); err != nil || c.MetricsListen != want {
			t.Errorf("%q: %q, %v; want %q", value, c.MetricsListen, err, want)
		}
	}
	for _, value := range []string{
		"", "on", "true", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:+1", "::1:9400", "[::1]",
		"[127.0.0.1]:1", "example.org:9400", "*:9400", "http://127.0.0.1:9400", "[::1:9400", "127.0.0.1:9400/metrics", "9400 ",
	} {
		c := Default(User{})
		if err := c.Set("metrics_listen", value); err == nil || !strings.Contains(err.Error(), "127.0.0.1:9400") {
			t.Errorf("%q: %q, %v", value, c.MetricsListen, err)
		}
	}
}

// Nothing is served unless it is asked for, and a mistake names file, line and key.
func TestMetricsListenInTheFile(t *testing.T) {
	if c := Default(User{}); c.MetricsListen != "" {
		t.Errorf("by default %q", c.MetricsListen)
	}
	file := filepath.Join(t.TempDir(), "weir.toml")
	for text, want := range map[string]string{
		"# a\nmetrics_listen = \"node:9400\"\n": file + ":2: metrics_listen: \"node:9400\": want off",
		"metrics_listen = 9400\n":               file + ":1: metrics_listen: want \"off\", or an address",
		"[metrics]\nlisten = \"off\"\n":         "unknown key \"metrics",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default(User{})
		if err := c.ReadFile(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
