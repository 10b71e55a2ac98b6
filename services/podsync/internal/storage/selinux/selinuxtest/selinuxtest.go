// Package selinuxtest has a policy of SELinux for tests, and what is counted of labels.
//
// It must never be used by anything but tests.
package selinuxtest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Policy is that of a node that has SELinux, or not.
type Policy bool

// Enabled implements selinux.Policy.
func (p Policy) Enabled() bool { return bool(p) }

// File implements selinux.Policy.
func (Policy) File() string { return Label("s0") }

// Label is the label of files that a process of a level may use.
func Label(level string) string { return "u:object_r:container_file_t:" + level }

// Counted are the series of labels that are not zero, each with the values of its own labels.
func Counted(t *testing.T, from prometheus.Gatherer) (list []string) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name, is := strings.CutPrefix(f.GetName(), "volume_manager_selinux_")
		for _, m := range f.GetMetric() {
			if !is || m.GetGauge().GetValue() == 0 {
				continue
			}
			text := strings.TrimSuffix(name, "_total")
			for _, l := range m.GetLabel() {
				text += " " + l.GetValue()
			}
			list = append(list, text)
		}
	}
	return list
}
