package collector

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// holder is a node with two containers, both of which this process is in.
type holder struct{ cgroups }

func holderNames() (first, second string) { return strings.Repeat("a", 64), strings.Repeat("b", 64) }

func (h holder) Walk(root string, _ func(string) bool) ([]string, error) {
	first, second := holderNames()
	return []string{root, path.Join(root, first), path.Join(root, second)}, nil
}

func (holder) PIDs(string) []int { return []int{os.Getpid()} }

func TestAContainerIsNamedThatHoldsAFileOpenWhichWasRemoved(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	names := &inventory.Table{}
	first, second := holderNames()
	change := inventory.Change{Snapshot: true}
	for _, id := range []string{first, second} {
		change.Containers = append(change.Containers, inventory.Container{ID: id, Name: id[:1], Pod: inventory.Pod{Namespace: "ns", Name: "p", UID: "u"}})
	}
	names.Apply(change)
	meter := sampler.New(sampler.Roots{Pods: "/kubepods"}, sampler.Deps{Cgroups: holder{}, Names: names, Proc: "/proc", Machine: machine.New(time.Hour)})
	synctest.Test(t, func(t *testing.T) { // so that a busy machine takes none of the first one's turn
		found, all, err := New(Config{RootDir: dir}, Deps{Meter: meter, Names: names, Proc: "/proc"}).Unlinked(t.Context())
		if err != nil || !all || len(found) != 1 {
			t.Fatalf("%+v, %v, %v", found, all, err) // Who holds it, too, is not told of again.
		}
		if u := found[0]; u.PodUID != "u" || u.Container != "a" || u.Root.Bytes < 1<<20 || u.Root.Count < 1 || !strings.HasSuffix(u.Largest, "/gone") {
			t.Errorf("%+v", u)
		}
	})
}

// lookAt is a look at containers, each of a process of its own that sees these mounts.
func lookAt(t *testing.T, root process.Device, all ...*holding) *look {
	t.Helper()
	l := &look{proc: process.Proc(t.TempDir()), root: root, seen: map[process.Inode]bool{}, layers: map[string]*holding{}, all: all}
	for i, h := range all {
		h.PIDs, l.layers[h.ID] = []int{i + 1}, h
		var lines strings.Builder
		for number, dir := range h.mounted {
			fmt.Fprintf(&lines, "%d 1 8:1 %s /somewhere rw - ext4 /dev/sda1 rw\n", number, dir)
		}
		h.mounted = map[uint64]string{}
		dir := filepath.Join(string(l.proc), fmt.Sprint(i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func held(uid, name string, mounted map[uint64]string) *holding {
	return &holding{
		Processes: sampler.Processes{Target: sampler.Target{ID: uid + name, Pod: inventory.Pod{UID: uid}}},
		found:     Unlinked{PodUID: uid, Container: name}, mounted: mounted,
	}
}

func TestARemovedFileCountsOnceAndForTheVolumeAndTheContainerThatItLiesIn(t *testing.T) {
	disk, overlay := process.Device{Major: 8, Minor: 1}, process.Device{Minor: 50}
	const volumes = "/var/lib/kubelet/pods/%s/volumes/kubernetes.io~empty-dir/%s"
	of := func(uid, name string) string { return fmt.Sprintf(volumes, uid, name) }
	file := func(device process.Device, inode, mount, bytes uint64) process.Unlinked {
		return process.Unlinked{Inode: process.Inode{Device: device, Number: inode}, Mount: mount, Bytes: bytes, Path: "/f", Writable: true}
	}
	a := held("u", "a", map[uint64]string{1: of("u", "cache"), 2: of("u", "work"), 3: "/srv"})
	b := held("u", "b", map[uint64]string{4: of("u", "cache") + "/below", 5: of("v", "cache")})
	other := held("v", "c", map[uint64]string{6: of("v", "cache")})
	l := lookAt(t, disk, other, a, b)
	l.devices = map[string]string{"0:50": "ub", "0:51": "of one that has ended"}
	readOnly := file(overlay, 23, 0, 1<<40)
	readOnly.Writable = false
	for _, x := range []struct {
		holder *holding
		pid    int
		file   process.Unlinked
	}{
		{other, 1, file(disk, 10, 2, 1)}, // It was given to another pod: a's work.
		{other, 1, file(disk, 11, 1, 10)},
		{a, 2, file(disk, 11, 1, 10)}, // a holds it, too.
		{b, 3, file(disk, 11, 4, 10)},
		{b, 3, file(disk, 12, 4, 100)},
		{a, 2, file(disk, 13, 3, 1000)},     // In a directory of the host's.
		{b, 3, file(disk, 14, 5, 10000)},    // As another pod's volume, which it has as one.
		{a, 2, file(disk, 15, 0, 1<<20)},    // By an old kernel.
		{a, 2, file(disk, 16, 99, 1<<21)},   // Nobody sees the mount.
		{other, 1, file(overlay, 20, 0, 5)}, // In b's layer.
		{b, 3, file(overlay, 20, 0, 5)},
		{other, 1, file(process.Device{Minor: 51}, 21, 0, 7)},
		{a, 2, file(process.Device{Minor: 60}, 22, 0, 1<<40)}, // On a filesystem of its own.
		{b, 3, readOnly},
	} {
		l.see(t.Context(), x.holder, x.pid, x.file)
	}
	l.settle(t.Context())
	for _, want := range []struct {
		holder      *holding
		root, layer Files
		volumes     map[string]Files
	}{
		{a, Files{1 + 10 + 1000 + 1<<20 + 1<<21, 5}, Files{}, map[string]Files{"work": {1, 1}, "cache": {10, 1}}},
		{b, Files{100 + 10000, 2}, Files{5, 1}, map[string]Files{"cache": {100, 1}}},
		{other, Files{}, Files{7, 1}, nil},
	} {
		got := want.holder.found
		if got.Root != want.root || got.Layer != want.layer || !maps.Equal(got.Volumes, want.volumes) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Else whoever holds a million files open had nobody's others looked at.
func TestAContainerWhoseFilesTakeTooLongIsSaidAndKeepsUpNoOther(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &look{proc: "/proc", seen: map[process.Inode]bool{}}
	first, second := held("u", "a", map[uint64]string{}), held("v", "b", map[uint64]string{})
	first.PIDs, second.PIDs = []int{os.Getpid()}, nil
	l.all = []*holding{first, second}
	cancel()
	l.everywhere(ctx)
	if !first.found.Incomplete || second.found.Incomplete {
		t.Errorf("%+v, %+v", first.found, second.found)
	}
	l.everywhere(t.Context())
	if first.found.Incomplete {
		t.Errorf("with time: %+v", first.found)
	}
	if l.at(t.Context(), first, 0) {
		t.Error("all was looked at in no time")
	}
}

// A container in a user namespace of its own makes mounts by the ten thousand, for each of
// its processes others, and stats has little memory.
func TestOfAContainersMountsABoundedNumberIsKeptAndNoneIsReadWhenTheTimeIsOver(t *testing.T) {
	device := process.Device{Major: 8, Minor: 1}
	many := map[uint64]string{}
	for i := range 3 * mostMounts {
		many[uint64(i+1)] = "/"
	}
	a, b := held("u", "a", many), held("v", "b", map[uint64]string{1 << 20: "/var/lib/kubelet/pods/v/volumes/kubernetes.io~empty-dir/x"})
	l := lookAt(t, device, a, b)
	file := process.Unlinked{Inode: process.Inode{Device: device, Number: 1}, Mount: 1 << 20, Bytes: 7, Path: "/f", Writable: true}
	l.see(t.Context(), a, 1, file)
	if len(a.mounted) != mostMounts || len(l.strays) != 1 {
		t.Errorf("%d mounts are kept, %d strays", len(a.mounted), len(l.strays))
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.settle(over)
	if b.read != 0 || a.found.Root.Bytes != 7 {
		t.Errorf("mounts of %d processes were read when the time was over; %+v", b.read, a.found)
	}
}
