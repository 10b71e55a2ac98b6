package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
