package kubeletconfig

import (
	"strings"
	"testing"
)

func TestThatMemoryIsNotProtectedOnThisMachineIsSaid(t *testing.T) {
	said := mustLoad(t, "--config="+write(t, t.TempDir(), "c.yaml", header+"featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.5\n")).WithoutEffect()
	if cgroupV2() {
		if len(said) != 0 {
			t.Errorf("with cgroup v2 %v", said)
		}
		return
	}
	if len(said) != 1 || !strings.HasPrefix(said[0].String(), "featureGates.MemoryQoS: true has no effect: this machine has cgroup v1") {
		t.Errorf("with cgroup v1 %v", said)
	}
}
