package collector

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
)

// Its volume's figure has it already: whoever adds both evicts for half of what is allowed.
func TestARemovedFileInAVolumeThatItsFilesystemCountsIsSaidByItselfAlone(t *testing.T) {
	disk := process.Device{Major: 8, Minor: 1}
	const volumes = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/"
	a := held("u", "a", map[uint64]string{1: volumes + "cache", 2: volumes + "work/below", 3: "/srv"})
	other := held("v", "b", map[uint64]string{})
	a.counted = map[string]bool{"cache": true}
	l := lookAt(t, disk, other, a)
	for i, x := range []struct {
		holder *holding
		mount  uint64
		bytes  uint64
	}{
		{a, 1, 1},
		{other, 1, 10}, // It was given to another pod, and is a's still.
		{a, 2, 100},
		{a, 3, 1000},
		{a, 99, 10000}, // Nobody sees the mount.
		{a, 0, 20000},  // By an old kernel.
		{other, 98, 100000},
	} {
		f := process.Unlinked{Inode: process.Inode{Device: disk, Number: uint64(i)}, Mount: x.mount, Bytes: x.bytes, Path: "/f", Writable: true}
		l.see(t.Context(), x.holder, map[*holding]int{other: 1, a: 2}[x.holder], f)
	}
	l.settle(t.Context())
	if want := map[string]Files{"cache": {11, 2}, "": {30000, 2}}; !maps.Equal(a.found.Counted, want) {
		t.Errorf("counted are %+v, want %+v", a.found.Counted, want)
	}
	if want := map[string]Files{"work": {100, 1}}; !maps.Equal(a.found.Volumes, want) || a.found.Root != (Files{1100, 2}) {
		t.Errorf("beside them %+v", a.found)
	}
	if other.found.Root != (Files{100000, 1}) || len(other.found.Counted) != 0 {
		t.Errorf("of another pod: %+v", other.found)
	}
}

func TestTheVolumesThatAreCountedAreKnownByPod(t *testing.T) {
	names := &inventory.Table{}
	names.Apply(inventory.Change{Snapshot: true, Volumes: []inventory.PodVolumes{
		{Pod: inventory.Pod{UID: "u"}, Volumes: []inventory.Volume{{Name: "a", Counted: true}, {Name: "b"}}},
		{Pod: inventory.Pod{UID: "v"}, Volumes: []inventory.Volume{{Name: "c"}}},
	}})
	if diff := cmp.Diff(map[string]map[string]bool{"u": {"a": true}}, countedVolumes(names.View())); diff != "" {
		t.Error(diff)
	}
}
