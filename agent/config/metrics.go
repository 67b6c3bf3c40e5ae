package config

// The address at which metrics are served.

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// MetricsOff is the value of metrics_listen with which no metrics are served.
const MetricsOff = "off"

// parseMetricsListen reads where metrics are served: empty where they are not. Who says a port only means this machine; any
// other address has to be written out, since whoever reaches it reads all. It is an address, not a name, which might come
// to mean another. Port 0 is any that is free.
func parseMetricsListen(value string) (string, error) {
	if value == MetricsOff {
		return "", nil
	}
	host, port := "127.0.0.1", strings.TrimPrefix(value, ":")
	if at := strings.LastIndexByte(value, ':'); at > 0 {
		host, port = value[:at], value[at+1:]
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	number, portErr := strconv.ParseUint(port, 10, 16)
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if err != nil || portErr != nil || bracketed != address.Is6() {
		return "", fmt.Errorf("%.70q: want %s, a port, or an address of this machine with one, such as 127.0.0.1:9400 or "+
			"[::1]:9400; all of them are 0.0.0.0:9400 and [::]:9400", value, MetricsOff)
	}
	return netip.AddrPortFrom(address, uint16(number)).String(), nil
}
