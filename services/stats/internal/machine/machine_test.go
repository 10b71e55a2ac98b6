package machine

import (
	"testing"
	"time"
)

func TestADescriptionIsKeptForAsLongAsItMayBeOld(t *testing.T) {
	for maxAge, kept := range map[time.Duration]bool{time.Hour: true, 0: false} {
		m := New(maxAge)
		first, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		second, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if (first == second) != kept {
			t.Errorf("with %s the first description is kept: %t", maxAge, first == second)
		}
		if first.NumCores < 1 || first.MemoryCapacity == 0 {
			t.Errorf("%d cores and %d bytes of memory", first.NumCores, first.MemoryCapacity)
		}
	}
}

func TestAFilesystemShowsNoMoreThanItHas(t *testing.T) {
	shown, err := New(time.Hour).FilesystemStats()
	if err != nil || len(shown) == 0 {
		t.Fatalf("%d filesystems: %v", len(shown), err)
	}
	for _, s := range shown {
		if s.Device == "" || s.Type == "" || s.Limit == 0 || s.Usage+s.Available > s.Limit || s.InodesFree > s.Inodes {
			t.Errorf("%+v", s)
		}
	}
}

func TestTheVersionNamesTheKernel(t *testing.T) {
	if v := New(time.Hour).Version(); v.KernelVersion == "" || v.KernelVersion == "Unknown" {
		t.Errorf("%+v", v)
	}
}
