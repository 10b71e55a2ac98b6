package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/resources"
)

func TestAContainerIsLimitedToTheHugePagesOfItsPod(t *testing.T) {
	f := newFixture(t)
	f.builder.machine.once.Do(func() { f.builder.machine.pageSizes = []string{"2MB", "1GB"} })
	p := pod(v1.Container{})
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"hugepages-2Mi": resource.MustParse("64Mi")}}
	got := f.builder.containerResources(p, &p.Spec.Containers[0]).HugepageLimits
	if len(got) != 2 || got[0].GetPageSize() != "2MB" || got[0].GetLimit() != 64<<20 || got[1].GetLimit() != 0 {
		t.Errorf("limits %v", got)
	}
}

func TestMemoryOfAContainerIsProtectedAndSlowedDownOnUnifiedCgroupsOnly(t *testing.T) {
	for _, unified := range []bool{false, true} {
		f := newFixture(t)
		f.builder.machine.once.Do(func() { f.builder.machine.unified = unified })
		f.builder.cfg.MemoryQoS = resources.MemoryQoS{On: true, Tiered: true, Factor: .5}
		f.builder.cfg.ReservedMemoryBytes = 1 << 30
		p := pod(v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}})
		got := f.builder.containerResources(p, &p.Spec.Containers[0]).GetUnified()
		resized := f.builder.Resized(p, "c", resources.Kernel{}).GetUnified()
		for name, files := range map[string]map[string]string{"new": got, "resized": resized} {
			if unified != (files["memory.low"] == "1073741824") || unified != (files["memory.high"] == "2147483648") { // 1 + (4 - 1 - 1) / 2 Gi
				t.Errorf("unified %v, %s: %v", unified, name, files)
			}
		}
		if unified && got["memory.oom.group"] != "1" {
			t.Errorf("what else is said is lost: %v", got)
		}
	}
}
