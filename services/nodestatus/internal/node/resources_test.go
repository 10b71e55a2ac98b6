package node

import (
	"strings"
	"testing"
)

func TestMoreThanThereIsMayNotBeReserved(t *testing.T) {
	machine := &Machine{Cores: 2, MemoryBytes: 4 << 30, RootFilesystemBytes: 100 << 30, MaxPIDs: 32768}
	for name, c := range map[string]struct {
		resource, quantity, refuse string
	}{
		"all":               {"pid", "32768", ""},
		"one process more":  {"pid", "32769", "pid: 32769 reserved of 32768"},
		"all memory":        {"memory", "4Gi", ""},
		"memory":            {"memory", "5Gi", "memory: 5Gi reserved of 4Gi"},
		"what nobody knows": {"example.com/gpu", "5", ""},
	} {
		err := CheckReservation(Config{KubeReserved: list(c.resource, c.quantity)}, machine)
		if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse) || !strings.Contains(err.Error(), "lower kubeReserved, systemReserved")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckReservation(Config{KubeReserved: list("pid", "1")}, &Machine{Cores: 1}); err != nil {
		t.Errorf("how many there are is not known: %v", err)
	}
}
