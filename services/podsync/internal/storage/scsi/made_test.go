package scsi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

const (
	recordOfPortal = "nodes/" + iqn + "/" + portal
	node           = "iscsiadm -m node -p " + portal + " -T " + iqn + " -I default "
)

// endedAfter sets a volume up, restarts, takes it down, and says what was asked for from then
// on.
func (b *bench) endedAfter(lun int32) string {
	b.t.Helper()
	r := b.inline("uid-1", "v", source(lun))
	b.setUp(r)
	before := b.read("asked")
	b.restart()
	b.takeDown(r)
	b.settleAll()
	b.bare()
	return strings.TrimPrefix(b.read("asked"), before)
}

// TestARecordIsKnownToBeOursBeforeItIsMade: who crashes in between would leave one that
// nobody removes.
func TestARecordIsKnownToBeOursBeforeItIsMade(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	crashed := errors.New("it has crashed")
	b.deps.Run = func(ctx context.Context, program string, args ...string) (string, error) {
		if b.read(recordOfPortal) != "" { // what comes after it is not done either
			return "", crashed
		}
		said, err := b.here(ctx, program, args...)
		if b.read(recordOfPortal) != "" {
			return "", crashed
		}
		return said, err
	}
	if _, err := b.Setup(t.Context(), b.inline("uid-1", "v", source(0))); !errors.Is(err, crashed) {
		t.Fatal(err)
	}
	b.restart()
	b.settlesTheOne()
	if b.read(recordOfPortal) != "" {
		t.Error("the record is left")
	}
}

// TestASessionThatTheAdministratorHasBegunStays, with its record: the machine's own disks may
// be had by it.
func TestASessionThatTheAdministratorHasBegunStays(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make(recordOfPortal, "the administrator's")
	begin(b.host, portal)
	if asked := b.endedAfter(0); strings.Contains(asked, "--logout") || strings.Contains(asked, "delete") {
		t.Errorf("asked\n%s", asked)
	}
	if b.read(recordOfPortal) != "the administrator's" || b.read("sys/class/iscsi_host/host2/device/session2/iscsi_session/session2/targetname") == "" {
		t.Error("the session or its record is gone")
	}
}

func TestARecordOfTheAdministratorsIsUsedAsItIs(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make(recordOfPortal, "the administrator's")
	if asked := b.endedAfter(0); !strings.Contains(asked, node+"--logout") || strings.Contains(asked, "delete") {
		t.Errorf("asked\n%s", asked)
	}
	if asked := b.read("asked"); b.read(recordOfPortal) != "the administrator's" || strings.Contains(asked, "-o new") || strings.Contains(asked, "-o update") {
		t.Errorf("it is changed; asked\n%s", asked)
	}
}

// TestARecordThatTheAdministratorMakesWhileALoginIsTriedAgainIsUsedAsItIs: what was made for the
// login that failed is removed.
func TestARecordThatTheAdministratorMakesWhileALoginIsTriedAgainIsUsedAsItIs(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("refuses/login")
	if _, err := b.Setup(t.Context(), b.inline("uid-1", "v", source(0))); err == nil || b.read(recordOfPortal) != "" {
		t.Fatalf("%v, record %q", err, b.read(recordOfPortal))
	}
	b.make(recordOfPortal, "the administrator's")
	if err := os.Remove(filepath.Join(b.host, "refuses/login")); err != nil {
		t.Fatal(err)
	}
	if asked := b.endedAfter(0); !strings.Contains(asked, node+"--logout") || strings.Contains(asked, "delete") {
		t.Errorf("asked\n%s", asked)
	}
	if got := b.read(recordOfPortal); got != "the administrator's" {
		t.Errorf("the record is %q", got)
	}
}

// TestASessionThatALaterBootHasBegunStays: the machine has begun it by its administrator's
// record, though one before was begun for the volume.
func TestASessionThatALaterBootHasBegunStays(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make(recordOfPortal, "the administrator's")
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	b.loseSession(r)
	begin(b.host, portal)
	b.boot = "boot-2"
	b.restart()
	if asked := b.endedAfter(0); strings.Contains(asked, "--logout") || strings.Contains(asked, "delete") {
		t.Errorf("asked\n%s", asked)
	}
}

// TestWhatWasMadeForADiskIsLeftToAnotherOfItsTarget also if the other one had come before, by
// a session of the administrator's, who has ended that.
func TestWhatWasMadeForADiskIsLeftToAnotherOfItsTarget(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	begin(b.host, portal)
	first, second := b.inline("uid-1", "v", source(1)), b.inline("uid-2", "w", source(2))
	b.setUp(first)
	if err := os.RemoveAll(filepath.Join(b.host, "sys/class/iscsi_host/host2")); err != nil {
		t.Fatal(err)
	}
	b.setUp(second)
	b.takeDown(second)
	b.settleAll()
	if strings.Contains(b.read("asked"), "--logout") {
		t.Error("the session is taken from the other disk")
	}
	b.restart()
	b.takeDown(first)
	b.settleAll()
	b.bare()
	if !b.wasAsked(node+"--logout") || b.read(recordOfPortal) != "" {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

// TestWhatAReleaseBeforeHasMadeIsTakenAway, which has not kept what that is.
func TestWhatAReleaseBeforeHasMadeIsTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	kept, err := filepath.Glob(filepath.Join(b.host, "root/plugins/polylet~disks/*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%q, %v", kept, err)
	}
	at := strings.TrimPrefix(kept[0], b.host)
	before, _, _ := strings.Cut(b.read(at), `,"Made"`)
	b.make(at, before+`},"namespace":"ns"}`)
	b.restart()
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if !b.wasAsked(node+"--logout") || b.read(recordOfPortal) != "" {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

// TestWhatWasMadeIsRememberedWhenADiskIsAttachedAgain, as after a crash: the session is there
// then.
func TestWhatWasMadeIsRememberedWhenADiskIsAttachedAgain(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.mounts.Fail = func(call, _ string) error { return onlyAt(call, "device") }
	if _, err := b.Setup(t.Context(), b.inline("uid-1", "v", source(0))); err == nil {
		t.Fatal("it is mounted")
	}
	b.mounts.Fail = nil
	b.restart()
	if asked := b.endedAfter(0); !strings.Contains(asked, node+"--logout") || b.read(recordOfPortal) != "" {
		t.Errorf("asked\n%s", asked)
	}
}

// TestWhatWasLeftToADiskThatIsBeingTakenAwayGoesWithIt: the disks of one target, which the volumes
// of one pod may be, end at once and wait for each other.
func TestWhatWasLeftToADiskThatIsBeingTakenAwayGoesWithIt(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	first, second := b.inline("uid-1", "v", source(1)), b.inline("uid-1", "w", source(2))
	b.setUp(first) // begins the session
	b.setUp(second)
	b.takeDown(first)
	b.takeDown(second)
	both, err := b.left() // as it was when both began to end
	if err != nil || len(both) != 2 || both[0].disk.(*target).Lun != "1" {
		t.Fatalf("%v, %v", both, err)
	}
	for _, p := range both {
		if used, err := b.settle(t.Context(), p); used || err != nil {
			t.Errorf("used: %v, %v", used, err)
		}
	}
	b.bare()
	b.hasNoSession()
}

// TestWhatIsLeftToADiskWhileItIsRefusedGoesWithIt: a pod may name another disk of a target whose
// only pod is about to end, and not get it, since the node has it in use.
func TestWhatIsLeftToADiskWhileItIsRefusedGoesWithIt(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	first, refused := b.inline("uid-1", "v", source(1)), b.inline("uid-2", "w", source(2))
	b.setUp(first)
	none := func(string) ([]string, error) { return nil, nil }
	b.deps.Shown = func(string) ([]string, error) {
		b.deps.Shown = none
		b.takeDown(first)
		b.settleAll()
		return []string{"/mnt"}, nil
	}
	if _, err := b.Setup(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "in use for something else") {
		t.Fatal(err)
	}
	b.settlesTheOne()
	b.hasNoSession()
}

// TestTheInterfaceOfADiskGoesWithItThoughItsTargetIsUsedStill, by a session that was not begun
// by it: nobody else would remove it.
func TestTheInterfaceOfADiskGoesWithItThoughItsTargetIsUsedStill(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	first, second := b.inline("uid-1", "v", source(1)), b.inline("uid-2", "w", source(2))
	initiator := "iqn.2001-04.example:i"
	second.Volume.ISCSI.InitiatorName = &initiator
	b.setUp(first)
	b.setUp(second)
	b.takeDown(second)
	b.settleAll()
	if !b.wasAsked("iscsiadm -m iface -I "+portal+":w -o delete") || b.wasAsked(node+"--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
	b.takeDown(first)
	b.settleAll()
	b.bare()
}

// TestARecordThatTheAdministratorMadeInPlaceOfOursStays: what is written into ours says which it
// is.
func TestARecordThatTheAdministratorMadeInPlaceOfOursStays(t *testing.T) {
	const theirs = "node.startup = automatic\nnode.session.scan = auto\n"
	for _, when := range []string{"before another login", "before the end"} {
		b := newBench(t)
		b.make("target.json", `{"0": "sd"}`)
		r := b.inline("uid-1", "v", source(0))
		b.setUp(r)
		b.make(recordOfPortal, theirs)
		if when == "before another login" {
			b.loseSession(r)
			b.setUp(r)
		}
		if got := b.read(recordOfPortal); got != theirs {
			t.Errorf("%s: it is written over: %q", when, got)
		}
		b.takeDown(r)
		b.settleAll()
		b.bare()
		if got := b.read(recordOfPortal); got != theirs || !b.wasAsked(node+"--logout") {
			t.Errorf("%s: it is %q; asked\n%s", when, got, b.read("asked"))
		}
	}
}

// loseSession has a volume's mounts and the session be gone, as when the administrator logs out.
func (b *bench) loseSession(r volume.Request) {
	b.t.Helper()
	for _, at := range []string{r.Dir, filepath.Join(b.host, "root/plugins/kubernetes.io/iscsi/iface-default", portal+"-"+iqn+"-lun-0")} {
		if err := b.mounts.Unmount(at); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(b.host, "sys/class/iscsi_host/host2")); err != nil {
		b.t.Fatal(err)
	}
}

// TestWhatIsOfNoUseAnyMoreIsLeftToNoOtherDisk: whoever makes pods may name any portals, also such
// as do not answer, while another pod has a disk of the target all the time.
func TestWhatIsOfNoUseAnyMoreIsLeftToNoOtherDisk(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	b.deps.Apart = &after{answers: &answers{inner: Calls()}, call: callRelease, do: func(args []string) {
		gone, _ := filepath.Glob(filepath.Join(b.host, "sys/class/iscsi_host/host*/device/session*/target*/*/block", filepath.Base(args[0])))
		for _, path := range gone {
			_ = os.RemoveAll(path)
		}
	}}
	stays := b.inline("uid-1", "v", source(1))
	b.setUp(stays)
	b.make("target.json", `{"2": "se"}`) // the kernel looks for no other disk in a session
	initiator := "iqn.2001-04.example:i"
	b.make("refuses/login-192.0.2.3:3260")
	for _, name := range []string{"a", "b"} {
		goes := b.inline("uid-2", name, source(2, "192.0.2.2", "192.0.2.3"))
		goes.Volume.ISCSI.InitiatorName = &initiator
		b.make("sys/block/dm-3/slaves/se3/")
		b.make("dev/dm-3")
		b.setUp(goes)
		b.takeDown(goes)
		b.settleAll()
		if !b.wasAsked("iscsiadm -m iface -I " + portal + ":" + name + " -o delete") {
			t.Errorf("the interface of %s is left", name)
		}
	}
	left, err := b.left()
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if made := left[0].disk.(*target).Made; len(made) != 1 || made[0].Portal != portal {
		t.Errorf("the disk that stays has %+v", made)
	}
	if sessions, err := b.sessions(iqn); len(sessions) != 1 || err != nil {
		t.Errorf("there are sessions %+v, %v", sessions, err)
	}
	b.takeDown(stays)
	b.settleAll()
	b.bare()
	b.hasNoSession()
}

// TestASessionWhosePortalDoesNotAnswerKeepsNoOther.
func TestASessionWhosePortalDoesNotAnswerKeepsNoOther(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("sys/block/dm-3/slaves/sd2/")
	b.make("dev/dm-3")
	r := b.inline("uid-1", "v", source(0, "192.0.2.2"))
	b.setUp(r)
	b.takeDown(r)
	b.make("refuses/logout-" + portal)
	name := b.settled[0]
	if left, err := b.Settle(t.Context(), name); !left || err == nil || !strings.Contains(err.Error(), "log out of "+iqn+" at "+portal) {
		t.Errorf("%v, %v", left, err)
	}
	if sessions, err := b.sessions(iqn); len(sessions) != 1 || err != nil || sessions[0].portals[0] != portal {
		t.Errorf("there are sessions %+v, %v", sessions, err)
	}
	if err := os.Remove(filepath.Join(b.host, "refuses/logout-"+portal)); err != nil {
		t.Fatal(err)
	}
	b.settleAll()
	b.bare()
	b.hasNoSession()
}
