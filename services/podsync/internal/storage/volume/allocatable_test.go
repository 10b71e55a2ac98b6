package volume

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// Right after podsync's start the Node object is not known yet, and later the node may
// reserve something else.
func TestALimitThatIsTheNodesFollowsTheNode(t *testing.T) {
	items := []v1.DownwardAPIVolumeFile{{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.memory"}}}
	for name, source := range map[string]v1.VolumeSource{
		"downwardAPI": {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}},
		"projected":   {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: items}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				amount := "1024"
				f.set.deps.Allocatable = func() v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: quantity(amount)} }
				ctx, stop := f.runs(t)
				defer stop()
				pod := podWith(v1.Volume{Name: "v", VolumeSource: source})
				if err := f.set.Setup(ctx, pod); err != nil {
					t.Fatal(err)
				}
				if got := f.files(t, "v")["memory"]; got != "1024" {
					t.Fatalf("at first %q", got)
				}
				amount = "512"
				f.set.AllocatableChanged()
				synctest.Wait()
				if got := f.files(t, "v")["memory"]; got != "512" {
					t.Errorf("%q after the node's changed to 512", got)
				}
			})
		})
	}
}
