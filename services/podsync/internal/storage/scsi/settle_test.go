package scsi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func pvSource(lun int32) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, IQN: iqn, Lun: lun}}
}

func TestADiskIsGivenToPodsAsADeviceAndTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	one, two := b.claimed("uid-1", "pv", pvSource(0), v1.PersistentVolumeBlock), b.claimed("uid-2", "pv", pvSource(0), v1.PersistentVolumeBlock)
	for range 2 {
		b.setUp(one)
	}
	b.setUp(two)
	device := filepath.Join(b.host, "dev/disk/by-path/ip-"+portal+"-iscsi-"+iqn+"-lun-0")
	place := filepath.Join(b.host, "root/plugins/kubernetes.io/iscsi/volumeDevices/iface-default", portal+"-"+iqn+"-lun-0")
	for _, uid := range []string{"uid-1", "uid-2"} {
		if to, err := os.Readlink(b.podDir(uid, "volumeDevices", "iscsi", "pv")); to != device || err != nil {
			t.Errorf("the link leads to %s, %v", to, err)
		}
		if got := b.mounts.Source(filepath.Join(place, uid)); got != device {
			t.Errorf("shown is %q", got)
		}
	}
	b.restart()
	b.takeDown(one)
	b.settleAll()
	if b.read("sys/block/sd2/device/delete") != "" {
		t.Error("the disk is taken from the other pod")
	}
	b.takeDown(two)
	b.settleAll()
	b.bare()
	if b.read("sys/block/sd2/device/delete") != "1" || !strings.Contains(b.read("asked"), "--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

// TestADiskIsTakenAwayForTheNamespaceOfItsPods: one whose disks do not answer leaves places to
// others, also after a restart.
func TestADiskIsTakenAwayForTheNamespaceOfItsPods(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	b.restart()
	calls := &answers{inner: Calls()}
	b.deps.Apart = calls
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if len(calls.whose) == 0 || slices.ContainsFunc(calls.whose, func(namespace string) bool { return namespace != "ns" }) {
		t.Errorf("it was asked for %q", calls.whose)
	}
}

func TestADeviceThatIsShownToAPodThatIsGoneIsTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.claimed("uid-1", "pv", pvSource(0), v1.PersistentVolumeBlock)
	b.setUp(r)
	if err := os.RemoveAll(filepath.Join(b.host, "root/pods/uid-1")); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.settlesTheOne()
}

// TestADiskThatSomebodyHoldsIsNotTakenAway: nor is the session with its target ended, and
// it is done later.
func TestADiskThatSomebodyHoldsIsNotTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	by := &answers{inner: Calls(), held: true}
	b.deps.Apart = by
	b.takeDown(r)
	name := b.settled[0]
	if left, err := b.Settle(t.Context(), name); !left || err == nil || !strings.Contains(err.Error(), "iscsi: failed to detach disk: ") {
		t.Errorf("%v, %v", left, err)
	}
	if b.read("sys/block/sd2/device/delete") != "" || strings.Contains(b.read("asked"), "--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
	by.held = false
	if left, err := b.Settle(t.Context(), name); left || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	b.bare()
}

// TestASessionWithAnotherDiskInUseIsNotEnded, though no pod has that.
func TestASessionWithAnotherDiskInUseIsNotEnded(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd", "5": "sf"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	b.takeDown(r)
	b.deps.Apart = &answers{inner: Calls(), of: "sf2"}
	b.settleAll()
	b.bare()
	if b.read("sys/block/sd2/device/delete") != "1" || strings.Contains(b.read("asked"), "--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

// TestWhatAVolumeSaysOfItselfIsNotBelieved: who writes into it could have the node log out
// of whatever he likes.
func TestWhatAVolumeSaysOfItselfIsNotBelieved(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	b.setUp(r)
	place := "root/plugins/kubernetes.io/iscsi/iface-default/" + portal + "-" + iqn + "-lun-0"
	b.make(place+"/iscsi.json", `{"Portals":["198.51.100.1:3260"],"Iqn":"`+iqn+`","Lun":"0","Iface":"default","InitIface":"default"}`)
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if strings.Contains(b.read("asked"), "198.51.100.1") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

func TestADiskThatAKubeletHasLeftIsTakenAway(t *testing.T) {
	for name, kept := range map[string]string{
		"as it has kept it": `{"VolName":"pv","Portals":["` + portal + `","192.0.2.2:3260"],"Iqn":"` + iqn + `","Lun":"0","InitIface":"default","Iface":"default","InitiatorName":"","MetricsProvider":null}`,
		"damaged":           `{`,
	} {
		b := newBench(t)
		b.make("target.json", `{"0": "sd"}`)
		place := "root/plugins/kubernetes.io/iscsi/iface-default/" + portal + "-" + iqn + "-lun-0"
		b.make(place+"/iscsi.json", kept)
		begin(b.host, portal)
		r := b.inline("uid-1", "v", source(0))
		if err := errors.Join(os.MkdirAll(r.Dir, 0o750), b.mounts.Device(t.Context(), "/dev/sd2", filepath.Join(b.host, place), "ext4", nil), b.mounts.Bind(filepath.Join(b.host, place), r.Dir)); err != nil {
			t.Fatal(err)
		}
		b.takeDown(r)
		if want := []v1.UniqueVolumeName{"kubernetes.io/iscsi/" + portal + ":" + iqn + ":0"}; !slices.Equal(b.settled, want) {
			t.Errorf("%s: settled are %q", name, b.settled)
		}
		b.settleAll()
		b.bare()
		if got, want := strings.Contains(b.read("asked"), "-p 192.0.2.2:3260"), kept != "{"; got != want {
			t.Errorf("%s: asked\n%s", name, b.read("asked"))
		}
	}
}

// TestADiskIsTakenAwayAfterACrashAtAnyPoint of its set-up.
func TestADiskIsTakenAwayAfterACrashAtAnyPoint(t *testing.T) {
	for name, fail := range map[string]func(call, target string) error{
		"at the mount for all":    func(call, _ string) error { return onlyAt(call, "device") },
		"at the mount of the pod": func(call, _ string) error { return onlyAt(call, "bind") },
	} {
		b := newBench(t)
		b.make("target.json", `{"0": "sd"}`)
		b.mounts.Fail = fail
		r := b.inline("uid-1", "v", source(0))
		if _, err := b.Setup(t.Context(), r); err == nil {
			t.Errorf("%s: it is set up", name)
		}
		b.mounts.Fail = nil
		b.restart()
		_ = os.RemoveAll(filepath.Join(b.host, "root/pods/uid-1"))
		names, err := b.Left()
		if err != nil || len(names) != 1 {
			t.Fatalf("%s: %q, %v", name, names, err)
		}
		if left, err := b.Settle(t.Context(), names[0]); left || err != nil {
			t.Errorf("%s: %v, %v", name, left, err)
		}
		b.bare()
		if !strings.Contains(b.read("asked"), "--logout") {
			t.Errorf("%s: the session is left", name)
		}
	}
}

func TestARecordOfAPlaceThatIsGoneGoes(t *testing.T) {
	b := newBench(t)
	w, err := wantedBy(b.inline("uid-1", "v", source(0)))
	if err != nil {
		t.Fatal(err)
	}
	p := b.placeOf(w.disk, false)
	if err := errors.Join(b.keep(p, false), os.RemoveAll(p.path)); err != nil {
		t.Fatal(err)
	}
	if names, err := b.Left(); len(names) != 0 || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	b.bare()
}

func onlyAt(call, at string) error {
	if call == at {
		return errors.New("it has failed")
	}
	return nil
}
