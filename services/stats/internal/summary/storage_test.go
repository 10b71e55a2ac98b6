package summary

import (
	"testing"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

func TestAVolumeThatItsDriverMeasuresIsShownAndIsNoneOfThePodsEphemeralStorage(t *testing.T) {
	f := facts()
	before := *Build(f).Pods[1].EphemeralStorage.UsedBytes
	pod := &f.Pods[1]
	pod.Volumes = append(pod.Volumes, inventory.Volume{Name: "driven", Driven: true, PVC: "mine"}, inventory.Volume{Name: "later", Driven: true})
	ill := true
	f.Disk.Driven = map[disk.Volume]disk.Driven{{PodUID: "u", Name: "driven"}: {
		Measured: disk.Measured{Tree: disk.Tree{Bytes: 5, Inodes: 1}, Filesystem: disk.Filesystem{Capacity: 9, Available: 3, Inodes: 8, InodesFree: 7}, Time: at}, Abnormal: &ill,
	}}
	built := Build(f).Pods[1]
	v := built.VolumeStats[len(built.VolumeStats)-1]
	if v.Name != "driven" || *v.UsedBytes != 5 || *v.CapacityBytes != 9 || *v.AvailableBytes != 3 || *v.InodesUsed != 1 || *v.Inodes != 8 ||
		v.PVCRef == nil || v.PVCRef.Name != "mine" || v.VolumeHealthStats == nil || !v.VolumeHealthStats.Abnormal {
		t.Errorf("it is shown as %+v", v)
	}
	if got := *built.EphemeralStorage.UsedBytes; got != before {
		t.Errorf("the pod's ephemeral storage is %d, and was %d without it", got, before)
	}
}

// What was moved from one directory to another that both take too long to be counted counts
// once: else a pod went by a limit that it has never exceeded.
func TestWhatIsPartlyKnownIsNotAddedToThePodsEphemeralStorage(t *testing.T) {
	f := facts()
	f.Pods[1].Volumes = append(f.Pods[1].Volumes, inventory.Volume{Name: "a", HostPath: "/v/a", Ephemeral: true}, inventory.Volume{Name: "b", HostPath: "/v/b", Ephemeral: true})
	before := *Build(f).Pods[1].EphemeralStorage.UsedBytes
	for large, want := range map[uint64]uint64{before / 2: before, 10 * before: 10 * before} {
		for path, bytes := range map[string]uint64{"/v/a": 1, "/v/b": large} {
			f.Disk.Directories[path] = disk.Measured{Tree: disk.Tree{Bytes: bytes}, Partly: true}
		}
		built := Build(f).Pods[1]
		if got := *built.EphemeralStorage.UsedBytes; got != want {
			t.Errorf("%d, want %d, with one that has at least %d", got, want, large)
		}
		if v := built.VolumeStats[len(built.VolumeStats)-1]; v.Name != "b" || *v.UsedBytes != large {
			t.Errorf("it is shown as %+v", v)
		}
	}
}

// Who waits until what was removed is free would wait for the runtime otherwise, which
// measures its filesystems every ten seconds.
func TestWhatIsLeftForTheRuntimeIsOfWhenThatWasMeasured(t *testing.T) {
	f := facts()
	measured := at.Add(9 * time.Second)
	f.Disk.Image = &RuntimeFilesystem{Filesystem: disk.Filesystem{Time: measured, Capacity: 9, Available: 3}, Usage: disk.Usage{Time: at, Bytes: 5}}
	if got := Build(f).Node.Runtime.ImageFs; !got.Time.Time.Equal(measured) || *got.AvailableBytes != 3 || *got.UsedBytes != 5 {
		t.Errorf("%+v", got)
	}
}
