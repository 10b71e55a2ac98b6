package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
)

func initPod() *v1.Pod {
	p := pod("p", 0, nil)
	p.Spec.Containers[0].Resources.Limits = asks("ephemeral-storage", "10Mi")
	p.Spec.InitContainers = []v1.Container{{Name: "init"}}
	p.Spec.Volumes = []v1.Volume{emptyDir("a", "", "")}
	return p
}

func initStats(volume, sum uint64) *statsapi.PodStats {
	s := stats("p", 0, 0, 0, 0, map[string]uint64{"a": volume})
	s.Containers = append(s.Containers, statsapi.ContainerStats{Name: "init", Rootfs: bytesOf(9 * mi)})
	s.EphemeralStorage = bytesOf(sum)
	return s
}

// One walk of the large directory counted 18Mi, which is enough to end a pod with 10Mi
// (docs/design/eviction.md). stats says max(9Mi of the init container, 18Mi) = 18Mi; what is
// left of the init container is taken off once more.
func TestALargeDirectoryAloneIsEnoughBesideAnInitContainerThatHasEnded(t *testing.T) {
	if got := Breaches([]*v1.Pod{initPod()}, figures(initStats(18*mi, 27*mi)), nil, threshold.Layout{}); len(got) != 1 {
		t.Errorf("counted in time: %+v", got)
	}
	if got := Breaches([]*v1.Pod{initPod()}, figures(initStats(18*mi, max(9*mi, 18*mi))), nil, threshold.Layout{}); len(got) != 1 {
		t.Errorf("partly: %d breaches, want 1", len(got))
	}
}

// Whose directories take too long goes by the files alone: 18Mi of them with a limit of 10Mi.
func TestFilesAloneAreEnoughBesideAnInitContainerThatHasEnded(t *testing.T) {
	held := map[types.UID][]Unlinked{"p": {{Container: "c", Root: Files{Bytes: 18 * mi, Count: 1}, Volumes: map[string]Files{"a": {Bytes: 18 * mi, Count: 1}}}}}
	s := LayersAlone(initStats(1*mi, 10*mi))
	if got := Breaches([]*v1.Pod{initPod()}, figures(s), held, threshold.Layout{}); len(got) != 1 {
		t.Errorf("%d breaches, want 1", len(got))
	}
}
