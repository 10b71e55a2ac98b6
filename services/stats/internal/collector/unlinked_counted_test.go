package collector

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
)

// Its volume's figure has it already: whoever adds both evicts for half of what is allowed.
func TestARemovedFileInAVolumeThatItsFilesystemCountsIsSaidByItselfAlone(t *testing.T) {
	disk := process.Device{Major: 8, Minor: 1}
	const volumes = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/"
	a := held("u", "a", map[uint64]string{1: volumes + "cache", 2: volumes + "work/below", 3: "/srv"})
	other := held("v", "b", map[uint64]string{})
	a.counted = map[string]Files{"cache": {31011, 5}}
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
		{a, 99, 10000},   // Nobody sees the mount.
		{a, 0, 20000},    // By an old kernel.
		{a, 99, 1 << 30}, // The figures have no more than a part of it.
		{other, 98, 100000},
	} {
		f := process.Unlinked{Inode: process.Inode{Device: disk, Number: uint64(i)}, Mount: x.mount, Bytes: x.bytes, Path: "/f", Writable: true}
		l.see(t.Context(), x.holder, map[*holding]int{other: 1, a: 2}[x.holder], f)
	}
	l.settle(t.Context())
	if want := map[string]Files{"cache": {11, 2}, "": {31000, 3}}; !maps.Equal(a.found.Counted, want) {
		t.Errorf("counted are %+v, want %+v", a.found.Counted, want)
	}
	if want := map[string]Files{"work": {100, 1}}; !maps.Equal(a.found.Volumes, want) || a.found.Root != (Files{100 + 1<<30, 2}) {
		t.Errorf("beside them %+v", a.found)
	}
	if other.found.Root != (Files{100000, 1}) || len(other.found.Counted) != 0 {
		t.Errorf("of another pod: %+v", other.found)
	}
}

// TestTheVolumesThatAreCountedAreThoseWhoseFiguresHaveFilesWithoutAName: else what has none in a
// volume that is walked after all counted for nobody.
func TestTheVolumesThatAreCountedAreThoseWhoseFiguresHaveFilesWithoutAName(t *testing.T) {
	dir, walked, none, unknown := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	has, err := disk.Walk(t.Context(), dir, func(disk.Tree) {})
	if err != nil {
		t.Fatal(err)
	}
	trees := disk.NewTrees(disk.TreesConfig{
		Period: time.Minute, Deadline: time.Minute, Forget: time.Hour,
		Count: func(_ context.Context, v disk.Volume) (disk.Tree, error) {
			switch v.Name {
			case "a":
				return disk.Tree{Bytes: has.Bytes + 5<<20, Inodes: has.Inodes + 7}, nil
			case "n":
				return has, nil
			}
			return disk.Tree{}, errors.New("it has another project")
		},
		Held: func(context.Context, disk.Volume) disk.Tree { return disk.Tree{Bytes: 1 << 30, Inodes: 7} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = trees.Run(ctx) }()
	defer func() { cancel(); <-done }()
	trees.Get(ctx, []disk.Directory{{Path: dir, Counted: disk.Volume{PodUID: "u", Name: "a"}}, {Path: walked, Counted: disk.Volume{PodUID: "u", Name: "b"}}, {Path: none, Counted: disk.Volume{PodUID: "u", Name: "n"}}})

	names := &inventory.Table{}
	names.Apply(inventory.Change{Snapshot: true, Volumes: []inventory.PodVolumes{
		{Pod: inventory.Pod{UID: "u"}, Volumes: []inventory.Volume{{Name: "a", HostPath: dir, Counted: true}, {Name: "b", HostPath: walked, Counted: true}, {Name: "n", HostPath: none, Counted: true}}},
		{Pod: inventory.Pod{UID: "v"}, Volumes: []inventory.Volume{{Name: "c"}}},
		{Pod: inventory.Pod{UID: "w"}, Volumes: []inventory.Volume{{Name: "d", HostPath: unknown, Counted: true}}},
	}})
	want := map[string]map[string]Files{"u": {"a": {5 << 20, 7}}}
	if diff := cmp.Diff(want, countedVolumes(names.View(), trees)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAFigureHasWithoutANameIsLeftOutThoughItsVolumeIsNoLongerCounted(t *testing.T) {
	names := &inventory.Table{}
	names.Apply(inventory.Change{Snapshot: true, Volumes: []inventory.PodVolumes{{Pod: inventory.Pod{UID: "u"}, Volumes: []inventory.Volume{{Name: "a", HostPath: "/a"}}}}})
	if got := countedVolumes(names.View(), disk.NewTrees(disk.TreesConfig{})); len(got) != 0 {
		t.Errorf("of one without a figure: %v", got)
	}
	dir := t.TempDir()
	has, err := disk.Walk(t.Context(), dir, func(disk.Tree) {})
	if err != nil {
		t.Fatal(err)
	}
	more := disk.Tree{Bytes: 3 << 20, Inodes: 40}
	trees := disk.NewTrees(disk.TreesConfig{
		Period: time.Minute, Deadline: time.Minute, Forget: time.Hour,
		Count: func(context.Context, disk.Volume) (disk.Tree, error) {
			return disk.Tree{Bytes: has.Bytes + more.Bytes, Inodes: has.Inodes + more.Inodes}, nil
		},
		Held: func(context.Context, disk.Volume) disk.Tree { return more },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = trees.Run(ctx) }()
	defer func() { cancel(); <-done }()
	trees.Get(ctx, []disk.Directory{{Path: dir, Counted: disk.Volume{PodUID: "u", Name: "a"}}})
	names.Apply(inventory.Change{Snapshot: true, Volumes: []inventory.PodVolumes{{Pod: inventory.Pod{UID: "u"}, Volumes: []inventory.Volume{{Name: "a", HostPath: dir}}}}})
	if got := countedVolumes(names.View(), trees)["u"]["a"]; got != (Files{more.Bytes, more.Inodes}) {
		t.Errorf("of one with a figure: %v", got)
	}
}

func TestWhatAPodHoldsOpenInAVolumeIsKnownForAWhile(t *testing.T) {
	c := &Collector{}
	c.held.next, c.held.until = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	c.held.found = []Unlinked{
		{PodUID: "u", Volumes: map[string]Files{"a": {Bytes: 1, Count: 2}}, Counted: map[string]Files{"b": {Bytes: 10, Count: 20}}},
		{PodUID: "u", Counted: map[string]Files{"a": {Bytes: 100, Count: 200}}},
		{PodUID: "v", Counted: map[string]Files{"a": {Bytes: 1000, Count: 2000}}},
	}
	if got := c.Held(t.Context(), disk.Volume{PodUID: "u", Name: "a"}); got != (disk.Tree{Bytes: 101, Inodes: 202}) {
		t.Errorf("it holds %+v", got)
	}
	c.held.until = time.Now()
	if got := c.Held(t.Context(), disk.Volume{PodUID: "u", Name: "a"}); got != (disk.Tree{}) {
		t.Errorf("later, though it is not to be looked yet, it holds %+v", got)
	}
}
