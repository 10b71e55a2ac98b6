package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// write writes the one word that a volume of files holds, and read reads it.
func write(t *testing.T, d *driver, id, word string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.volumes.content(id), "word"), []byte(word), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, d *driver, id string) string {
	t.Helper()
	word, err := os.ReadFile(filepath.Join(d.volumes.content(id), "word"))
	if err != nil {
		t.Error(err)
	}
	return string(word)
}

func snap(t *testing.T, d *driver, name, of string) error {
	t.Helper()
	_, err := d.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: of})
	return err
}

func restore(t *testing.T, d *driver, name, snapshot string, as *csi.VolumeCapability) error {
	t.Helper()
	_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 20}, VolumeCapabilities: []*csi.VolumeCapability{as},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
		}},
	})
	return err
}

// ids are the snapshots that are listed.
func ids(t *testing.T, d *driver, r *csi.ListSnapshotsRequest) (all []string, next string) {
	t.Helper()
	answer, err := d.ListSnapshots(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range answer.GetEntries() {
		all = append(all, one.GetSnapshot().GetSnapshotId())
	}
	return all, answer.GetNextToken()
}

func TestASnapshotKeepsWhatItsVolumeHeldThen(t *testing.T) {
	d, _ := newDriver(t)
	want(t, "make one", create(t, d, "one", "", 2<<20, files), codes.OK)
	write(t, d, "one", "then")
	want(t, "snapshot what is not there", snap(t, d, "s", "two"), codes.NotFound)
	want(t, "snapshot it", snap(t, d, "s", "one"), codes.OK)
	write(t, d, "one", "now")
	want(t, "snapshot it again", snap(t, d, "s", "one"), codes.OK)
	want(t, "snapshot another by that name", snap(t, d, "s", "two"), codes.AlreadyExists)
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "one"})
	want(t, "delete the volume", err, codes.OK)
	want(t, "restore it as a device", restore(t, d, "two", "s", device), codes.InvalidArgument)
	want(t, "restore what is not there", restore(t, d, "two", "x", files), codes.NotFound)
	want(t, "restore it", restore(t, d, "two", "s", files), codes.OK)
	if got := read(t, d, "two"); got != "then" {
		t.Errorf("the restored volume holds %q", got)
	}
	for range 2 {
		_, err = d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "s"})
		want(t, "delete the snapshot", err, codes.OK)
	}
	if left, err := os.ReadDir(d.snapshots.dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestSnapshotsAreListedByPages(t *testing.T) {
	d, _ := newDriver(t)
	want(t, "make one", create(t, d, "one", "", 1<<20, device), codes.OK)
	for _, name := range []string{"b", "a", "c"} {
		want(t, "snapshot "+name, snap(t, d, name, "one"), codes.OK)
	}
	first, next := ids(t, d, &csi.ListSnapshotsRequest{MaxEntries: 2})
	rest, end := ids(t, d, &csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: next})
	if got := append(first, rest...); !slices.Equal(got, []string{"a", "b", "c"}) || end != "" {
		t.Errorf("listed are %q, and then %q", got, end)
	}
	for _, r := range []*csi.ListSnapshotsRequest{{SnapshotId: "x"}, {SourceVolumeId: "x"}} {
		if got, _ := ids(t, d, r); len(got) > 0 {
			t.Errorf("%v lists %q", r, got)
		}
	}
	_, err := d.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: "x"})
	want(t, "go on from nowhere", err, codes.Aborted)
}

func TestSnapshotsOfAGroupComeAndGoTogether(t *testing.T) {
	d, _ := newDriver(t)
	for _, id := range []string{"one", "two"} {
		want(t, "make "+id, create(t, d, id, "", 2<<20, files), codes.OK)
		write(t, d, id, id)
	}
	group := func(of ...string) error {
		_, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: of})
		return err
	}
	want(t, "of nothing", group(), codes.InvalidArgument)
	for range 2 {
		want(t, "of both", group("one", "two"), codes.OK)
	}
	want(t, "of one only", group("one"), codes.AlreadyExists)
	if got, _ := ids(t, d, &csi.ListSnapshotsRequest{}); !slices.Equal(got, []string{"g-one", "g-two"}) {
		t.Errorf("listed are %q", got)
	}
	want(t, "restore one", restore(t, d, "three", "g-two", files), codes.OK)
	if got := read(t, d, "three"); got != "two" {
		t.Errorf("the restored volume holds %q", got)
	}
	_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "g-one"})
	want(t, "delete one of them", err, codes.InvalidArgument)
	_, err = d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g"})
	want(t, "delete the group", err, codes.OK)
	_, err = d.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g"})
	want(t, "find the group", err, codes.NotFound)
	if got, _ := ids(t, d, &csi.ListSnapshotsRequest{}); len(got) > 0 {
		t.Errorf("left are %q", got)
	}
}
