package scsi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func fabricSource(lun int32, wwns ...string) v1.VolumeSource {
	return v1.VolumeSource{FC: &v1.FCVolumeSource{TargetWWNs: wwns, Lun: &lun}}
}

func TestADiskOfAFabricIsLookedForMountedAndTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("sys/class/scsi_host/host0/scan")
	b.make("sys/class/scsi_host/host1/scan")
	makeDisk(b.host, "sda", "by-path/pci-0000:04:00.0-fc-0x50060e801049cfd1-lun-10", "by-path/pci-0000:04:00.0-fc-0x50060e801049cfd1-lun-0")
	makeDisk(b.host, "sdb", "by-path/fc-0x50060e801049cfd1-lun-1")
	r := b.inline("uid-1", "v", fabricSource(1, "50060e801049cfd1", "50060e801049cfd2"))
	b.setUp(r)
	place := filepath.Join(b.host, "root/plugins/kubernetes.io/fc/50060e801049cfd1-50060e801049cfd2-lun-1")
	if b.mounts.Source(r.Dir) != place || b.mounts.Source(place) != filepath.Join(b.host, "dev/sdb") {
		t.Errorf("it is %s of %s", b.mounts.Source(r.Dir), b.mounts.Source(place))
	}
	for _, host := range []string{"host0", "host1"} {
		if got := b.read("sys/class/scsi_host/" + host + "/scan"); got != "- - -" {
			t.Errorf("%s was told %q", host, got)
		}
	}
	if want := []v1.UniqueVolumeName{"kubernetes.io/fc/[50060e801049cfd1 50060e801049cfd2]:1"}; !slices.Equal(b.held, want) {
		t.Errorf("the cluster knows of %q", b.held)
	}
	if entries, err := os.ReadDir(place); len(entries) != 0 || err != nil {
		t.Errorf("a kubelet could not remove its place: %v, %v", entries, err)
	}
	b.restart()
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if b.read("sys/block/sdb/device/delete") != "1" || b.read("sys/block/sda/device/delete") != "" {
		t.Error("its disk is left, or another is taken")
	}
}

func TestADiskOfAFabricIsFoundByWWIDAndAsItsMultipathDevice(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-id/scsi-MAKER_0123")
	b.make("sys/block/dm-0/slaves/sda/")
	b.make("sys/block/dm-0/slaves/sdc/")
	b.make("sys/block/sdc/device/delete")
	b.make("dev/dm-0")
	b.make("sys/class/scsi_host/host0/scan")
	r := b.inline("uid-1", "v", v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"MAKER 0123"}, ReadOnly: true}})
	b.setUp(r)
	if got := b.origin(r.Dir); got != filepath.Join(b.host, "dev/dm-0") || b.read("sys/class/scsi_host/host0/scan") != "" {
		t.Errorf("it is %s", got)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if !b.wasAsked("multipath -f "+filepath.Join(b.host, "dev/dm-0")) || b.read("sys/block/sda/device/delete") != "1" || b.read("sys/block/sdc/device/delete") != "1" {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

// TestAllPathsToADiskGoAfterACrashBetweenThem: its multipath device is gone, and its link
// leads to one path, or to none any more.
func TestAllPathsToADiskGoAfterACrashBetweenThem(t *testing.T) {
	for name, link := range map[string]string{"the link leads to one": "by-id/scsi-3600508b4", "there is no link": "by-id/scsi-other"} {
		b := newBench(t)
		makeDisk(b.host, "sda", link)
		for disk, wwid := range map[string]string{"sda": "naa.600508b4", "sdb": "naa.600508b4", "sdc": "naa.600508b5", "sdd": "t10.600508b4", "sde": ""} {
			b.make("sys/block/" + disk + "/device/delete")
			b.make("sys/block/"+disk+"/device/wwid", wwid, "\n")
		}
		w, err := wantedBy(b.inline("uid-1", "v", v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"3600508b4"}}}))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.keep(b.placeOf(w.disk, false), false); err != nil {
			t.Fatal(err)
		}
		if left, err := b.Settle(t.Context(), w.disk.unique()); left || err != nil {
			t.Errorf("%s: %v, %v", name, left, err)
		}
		for disk, gone := range map[string]bool{"sda": true, "sdb": true, "sdc": false, "sdd": false, "sde": false} {
			if got := b.read("sys/block/"+disk+"/device/delete") == "1"; got != gone {
				t.Errorf("%s: %s is gone: %v", name, disk, got)
			}
		}
		b.bare()
	}
}

func TestThatNoDiskOfAFabricIsFoundIsSaid(t *testing.T) {
	b := newBench(t)
	makeDisk(b.host, "sda", "by-path/pci-0000:04:00.0-fc-0x50060e801049cfd1-lun-0") // the port is there
	for want, source := range map[string]v1.VolumeSource{
		"by-path leads to LUN 1 of 50060e801049cfd1, 50060e801049cfd2: ": fabricSource(1, "50060e801049cfd1", "50060e801049cfd2"),
		"by-id leads to 3600508b4: ":                                     {FC: &v1.FCVolumeSource{WWIDs: []string{"3600508b4"}}},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("stopped"))
		defer cancel()
		_, err := b.Setup(ctx, b.inline("uid-1", "v", source))
		if podstate.VolumeCauseOf(err) != podstate.VolumeFabric || !strings.HasPrefix(err.Error(), "MountVolume.WaitForAttach: no fc disk found") || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	for name, source := range map[string]*v1.FCVolumeSource{"no fc disk information found": {}, "other than letters": {WWIDs: []string{"a/b"}}} {
		if _, err := b.Setup(t.Context(), b.inline("uid-1", "v", v1.VolumeSource{FC: source})); podstate.VolumeCauseOf(err) != podstate.VolumeSpec || !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
	}
}
