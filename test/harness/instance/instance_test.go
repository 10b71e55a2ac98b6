package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func at(t *testing.T) {
	t.Helper()
	t.Setenv("POLYLET_INSTANCES", t.TempDir())
}

func TestTwoInstancesNeverShareANetwork(t *testing.T) {
	at(t)
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if a.Subnet == b.Subnet || a.Dir == b.Dir || a.CgroupRoot() == b.CgroupRoot() {
		t.Errorf("%+v and %+v collide", a, b)
	}
}

// Tests begin together, after a run that crashed.
func TestOneAtATimeRemovesWhatCrashedRunsHaveLeft(t *testing.T) {
	at(t)
	a, err := Named("crashed", false)
	if err != nil {
		t.Fatal(err)
	}
	a.OwnerStart = "0" // another process had the number
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	a.Release()
	unlock, err := lockCleaning()
	if err != nil {
		t.Fatal(err)
	}
	cleaned := make(chan error, 1)
	go func() { cleaned <- CleanStale() }()
	select {
	case err := <-cleaned:
		t.Errorf("it does not wait for who cleans: %v", err)
	case <-time.After(100 * time.Millisecond): // A real lock: it waits without a sign.
	}
	if _, err := Find("crashed"); err != nil {
		t.Errorf("removed beside who cleans: %v", err)
	}
	unlock()
	if err := <-cleaned; err != nil {
		t.Error(err)
	}
	if _, err := Find("crashed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestAKeptInstanceKeepsItsNetworkWhenTakenOver(t *testing.T) {
	at(t)
	a, err := Named("kept", true)
	if err != nil {
		t.Fatal(err)
	}
	a.Release()
	b, err := Named("kept", true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if a.Subnet != b.Subnet {
		t.Errorf("network moved from %d to %d", a.Subnet, b.Subnet)
	}
}

func TestAnInstanceInUseCannotBeTakenOver(t *testing.T) {
	at(t)
	a, err := Named("busy", true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	a.OwnerPid = os.Getppid()
	if a.OwnerStart, err = startTime(a.OwnerPid); err != nil {
		t.Fatal(err)
	}
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := Named("busy", true); err == nil {
		t.Error("an instance of a living process was taken over")
	}
}

func TestOnlyInstancesOfDeadOwnersAreStale(t *testing.T) {
	at(t)
	alive, err := Named("alive", false)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Release()
	dead, err := Named("dead", false)
	if err != nil {
		t.Fatal(err)
	}
	dead.OwnerStart = "0"
	if err := dead.save(); err != nil {
		t.Fatal(err)
	}
	kept, err := Named("kept", true)
	if err != nil {
		t.Fatal(err)
	}
	kept.OwnerStart = "0"
	if err := kept.save(); err != nil {
		t.Fatal(err)
	}
	if err := CleanStale(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{alive.Dir: true, dead.Dir: false, kept.Dir: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s exists = %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
	kept.Release()
	dead.Release()
}

// A second node's instance has a name of its own; only the first one's is taken over.
func TestWhoTakesOverAKeptInstanceClearsAwayWhatAKilledRunHasLeft(t *testing.T) {
	at(t)
	second, err := New()
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	second.OwnerStart = "0"
	if err := second.save(); err != nil {
		t.Fatal(err)
	}
	kept, err := Kept("kept")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Release()
	if _, err := os.Stat(second.Dir); err == nil {
		t.Error("it is still there")
	}
}

// A directory without its record is nobody's: nothing would ever clear it away.
func TestTheRecordGoesLast(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts something, which needs root")
	}
	at(t)
	inst, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	busy, err := inst.Mkdir("zz")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := inst.removeFiles(); err == nil {
		t.Error("a directory with a mount is removed")
	}
	if _, err := Find(inst.ID); err != nil {
		t.Errorf("what could not be removed is nobody's: %v", err)
	}
	if err := unix.Unmount(busy, 0); err != nil {
		t.Fatal(err)
	}
	if err := inst.removeFiles(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(inst.Dir); err == nil {
		t.Error("the directory stays")
	}
}
