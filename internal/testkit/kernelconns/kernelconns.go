// Package kernelconns tells tests which connections the kernel keeps, also those that
// nobody holds any more. It owns the reading of the kernel's table; it must never be used
// by what ships.
package kernelconns

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// To says whether there are connections over IPv4 to a port of 127.0.0.1, in whatever
// state. An unreadable table fails the test. Source: proc_net_tcp.txt of Linux.
func To(t *testing.T, port int) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	return toIn(string(table), port)
}

// toIn is To of a table.
func toIn(table string, port int) bool {
	remote := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == remote {
			return true
		}
	}
	return false
}
