package node

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/threshold"
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

// As a kubelet keeps back what evictionHard says, and no more.
func TestASoftThresholdWithoutAGracePeriodIsNotKeptFromAllocatable(t *testing.T) {
	thresholds, err := threshold.Parse(threshold.Settings{
		Hard:      map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
		Soft:      map[string]string{"memory.available": "1Gi", "nodefs.available": "15%"},
		SoftGrace: map[string]string{"memory.available": "0s", "nodefs.available": "0s"}, PodsEnforced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	total := v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	got := reserved(Config{Thresholds: thresholds}, total)
	if memory, disk := got[v1.ResourceMemory], got[v1.ResourceEphemeralStorage]; memory.String() != "100Mi" || disk.String() != "10737418400" {
		t.Errorf("kept back: memory %s, disk %s", memory.String(), disk.String())
	}
}
