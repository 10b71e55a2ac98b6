package scsi

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestADiskOfAnISCSITargetIsLoggedInToMountedAndTakenAway(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd"}`)
	one, two := b.inline("uid-1", "v", source(1)), b.inline("uid-2", "w", source(1))
	two.Volume.ISCSI.ReadOnly = true
	for range 2 {
		b.setUp(one)
	}
	b.setUp(two)
	place := filepath.Join(b.host, "root/plugins/kubernetes.io/iscsi/iface-default", portal+"-"+iqn+"-lun-1")
	if got, want := b.mounts.Source(place), filepath.Join(b.host, "dev/disk/by-path/ip-"+portal+"-iscsi-"+iqn+"-lun-1"); got != want {
		t.Errorf("mounted for all is %q, want %q", got, want)
	}
	if b.mounts.Source(one.Dir) != place || b.mounts.Source(two.Dir) != place || !slices.Equal(b.mounts.Options(two.Dir), []string{"ro"}) || b.mounts.Options(one.Dir) != nil {
		t.Errorf("the pods have %q and %q, which is %q", b.mounts.Source(one.Dir), b.mounts.Source(two.Dir), b.mounts.Options(two.Dir))
	}
	if got := b.read("sys/class/scsi_host/host2/scan"); got != "0 0 1" {
		t.Errorf("the kernel was told to look for %q", got)
	}
	node := "iscsiadm -m node -p " + portal + " -T " + iqn + " -I default "
	want := []string{
		"iscsiadm -m iface -I default -o show", node + "-o show", node + "-o new", node + "-o update -n node.startup -v manual",
		node + "-o update -n node.session.scan -v manual", node + "--login",
	}
	if got := b.asked(); !slices.Equal(got, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if names := slices.Compact(b.held); !slices.Equal(names, []v1.UniqueVolumeName{"kubernetes.io/iscsi/192.0.2.1:" + iqn + ":1"}) {
		t.Errorf("the cluster knows of %q", names)
	}
	kept := b.read("root/plugins/kubernetes.io/iscsi/iface-default/" + portal + "-" + iqn + "-lun-1/iscsi.json")
	if want := `{"VolName":"v","Portals":["` + portal + `"],"Iqn":"` + iqn + `","Lun":"1","InitIface":"default","Iface":"default","InitiatorName":"","TargetPortal":"192.0.2.1","Made":[{"Portal":"` + portal + `","Iface":"default","Record":true,"Written":true,"Boot":"boot-1"}]}` + "\n"; kept != want {
		t.Errorf("kept is %s", kept)
	}

	b.restart()
	b.takeDown(one)
	b.settleAll()
	if b.mounts.Source(place) == "" || b.read("sys/block/sd2/device/delete") != "" {
		t.Error("the disk is taken from the other pod")
	}
	b.takeDown(two)
	b.settleAll()
	b.bare()
	if b.read("sys/block/sd2/device/delete") != "1" || !b.wasAsked(node+"--logout") || !b.wasAsked(node+"-o delete") {
		t.Errorf("asked\n%s", strings.Join(b.asked(), "\n"))
	}
}

func TestASessionIsLeftWhileAnotherDiskOfItsTargetIsUsed(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"1": "sd", "2": "se"}`)
	one, two := b.inline("uid-1", "v", source(1)), b.inline("uid-2", "w", source(2))
	b.setUp(one)
	b.setUp(two)
	if n := strings.Count(b.read("asked"), "--login"); n != 1 {
		t.Errorf("logged in %d times", n)
	}
	b.takeDown(one)
	b.settleAll()
	if b.read("sys/block/sd2/device/delete") != "1" || b.read("sys/block/se2/device/delete") != "" || strings.Contains(b.read("asked"), "--logout") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
	b.takeDown(two)
	b.settleAll()
	b.bare()
	if !strings.Contains(b.read("asked"), "--logout") {
		t.Error("the session is left")
	}
}

func TestCHAPIsDoneWithTheSecretsWordsWhichAreInNoError(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.secrets["ns/chap"] = map[string][]byte{
		"discovery.sendtargets.auth.username": []byte("du"),
		"node.session.auth.username":          []byte("u"), "node.session.auth.password": []byte("p4ss"), "node.session.auth.username_in": []byte("ui"), "other": []byte("x"),
	}
	r := b.inline("uid-1", "v", source(0))
	r.Volume.ISCSI.DiscoveryCHAPAuth, r.Volume.ISCSI.SessionCHAPAuth, r.Volume.ISCSI.SecretRef = true, true, &v1.LocalObjectReference{Name: "chap"}
	b.make("refuses/login")
	_, err := b.Setup(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "failed to get any path for iscsi disk, last err seen:\niscsi: failed to attach disk: iscsiadm: exit status 24") || strings.Contains(err.Error(), "p4ss") {
		t.Error(err)
	}
	for _, want := range []string{
		"node.session.auth.authmethod -v CHAP", "node.session.auth.username -v u\n", "node.session.auth.password -v p4ss", "node.session.auth.username_in -v ui",
	} {
		if !strings.Contains(b.read("asked"), "-o update -n "+want) {
			t.Errorf("it was not told %s", want)
		}
	}
	if strings.Contains(b.read("asked"), "discovery") {
		t.Error("it is told the words of a discovery, of which there is none")
	}
	delete(b.secrets, "ns/chap")
	if _, err := b.Setup(t.Context(), r); err == nil || !strings.Contains(err.Error(), `couldn't get secret ns/chap error: secrets "chap" not found`) {
		t.Error(err)
	}
}

// TestATargetMakesAndChangesNoRecordsOfOthers: whoever answers at the portal, which may be of
// a pod's own spec, would say so at a discovery.
func TestATargetMakesAndChangesNoRecordsOfOthers(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("nodes/"+othersRecord, "the administrator's")
	r := b.inline("uid-1", "v", source(0))
	r.Volume.ISCSI.DiscoveryCHAPAuth = true
	b.setUp(r)
	records := func() (names []string) {
		root := filepath.Join(b.host, "nodes")
		_ = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				names = append(names, strings.TrimPrefix(path, root+"/"))
			}
			return err
		})
		return names
	}
	if got := records(); !slices.Equal(got, []string{iqn + "/" + portal, othersRecord}) {
		t.Errorf("there are records of %q", got)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if got := records(); !slices.Equal(got, []string{othersRecord}) || b.read("nodes/"+othersRecord) != "the administrator's" {
		t.Errorf("left are records of %q", got)
	}
}

func TestWhatIsLoggedInToIsNotLoggedInToByTheMachinesNextBoot(t *testing.T) {
	b := newBench(t)
	b.make("refuses/login")
	if _, err := b.Setup(t.Context(), b.inline("uid-1", "v", source(0))); err == nil {
		t.Fatal("it is logged in to")
	}
	node := "iscsiadm -m node -p " + portal + " -T " + iqn + " -I default "
	asked := b.asked()
	if manual, login := slices.Index(asked, node+"-o update -n node.startup -v manual"), slices.Index(asked, node+"--login"); manual < 0 || manual > login {
		t.Errorf("asked\n%s", strings.Join(asked, "\n"))
	}
	if b.read("nodes/"+iqn+"/"+portal) != "" || asked[len(asked)-1] != node+"-o delete" {
		t.Error("its record is left")
	}
}

// TestALinkToAnotherTargetsDiskIsNotTaken: a target may choose its name.
func TestALinkToAnotherTargetsDiskIsNotTaken(t *testing.T) {
	const name = "ip-192.0.2.1:3260-iscsi-iqn.a-lun-0"
	for _, c := range []struct {
		link, transport string
		want            bool
	}{
		{name, "tcp", true},
		{name + "-part1", "tcp", false},
		{"pci-0000:04:00.0-" + name, "tcp", false},
		{"pci-0000:04:00.0-" + name, "be2iscsi", true},
		{name, "be2iscsi", false},
		{"pci-0000:04:00.0-ip-198.51.100.1:3260-iscsi-iqn.x-" + name, "be2iscsi", false},
	} {
		if got := leads(c.link, name, c.transport); got != c.want {
			t.Errorf("%s by %s: %v", c.link, c.transport, got)
		}
	}
}

// TestAWordOfASecretIsNoLineOfARecord: iscsiadm writes it into a file of lines.
func TestAWordOfASecretIsNoLineOfARecord(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	r.Volume.ISCSI.SessionCHAPAuth, r.Volume.ISCSI.SecretRef = true, &v1.LocalObjectReference{Name: "chap"}
	b.secrets["ns/chap"] = map[string][]byte{"node.session.auth.password": []byte("p4ss\nnode.startup = automatic\n")}
	if _, err := b.Setup(t.Context(), r); podstate.VolumeCauseOf(err) != podstate.VolumeAsSaid || !strings.Contains(err.Error(), "node.session.auth.password of the secret has more than one line") || strings.Contains(err.Error()+b.read("asked"), "p4ss") {
		t.Errorf("%v, asked\n%s", err, b.read("asked"))
	}
	b.secrets["ns/chap"]["node.session.auth.password"] = []byte("p4ss\n") // as an editor leaves it
	b.setUp(r)
	if !strings.Contains(b.read("asked"), "-v p4ss\niscsiadm") {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

func TestAVolumeWithAnInitiatorNameHasAnInterfaceOfItsOwn(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	r := b.inline("uid-1", "v", source(0))
	name := "iqn.1994-05.example:me"
	r.Volume.ISCSI.InitiatorName = &name
	b.setUp(r)
	own := portal + ":v"
	for _, want := range []string{
		"iscsiadm -m iface -I " + own + " -o new", "iscsiadm -m iface -I " + own + " -o update -n iface.initiatorname -v " + name,
		"iscsiadm -m iface -I " + own + " -o update -n iface.transport_name -v tcp", "iscsiadm -m node -p " + portal + " -T " + iqn + " -I " + own + " --login",
	} {
		if !b.wasAsked(want) {
			t.Errorf("not asked: %s", want)
		}
	}
	if got := filepath.Base(filepath.Dir(b.mounts.Source(r.Dir))); got != "iface-"+own {
		t.Errorf("it lies at %s", got)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if !b.wasAsked("iscsiadm -m iface -I " + own + " -o delete") {
		t.Error("the interface is left")
	}
}

func TestADiskOfSeveralPortalsIsItsMultipathDevice(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("sys/block/dm-1/slaves/sd2/")
	b.make("sys/block/dm-1/dm/uuid", "LVM-x\n")
	b.make("sys/block/dm-3/slaves/sd2/")
	b.make("sys/block/dm-3/slaves/sd3/")
	b.make("sys/block/dm-3/dm/uuid", "mpath-3600\n")
	b.make("dev/dm-3")
	r := b.inline("uid-1", "v", source(0, "192.0.2.2", "192.0.2.1"))
	b.setUp(r)
	if got, want := b.origin(r.Dir), filepath.Join(b.host, "dev/dm-3"); got != want {
		t.Errorf("the disk is %s", got)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
	if !b.wasAsked("multipath -f "+filepath.Join(b.host, "dev/dm-3")) || b.read("sys/block/sd2/device/delete") != "1" || b.read("sys/block/sd3/device/delete") != "1" {
		t.Errorf("asked\n%s", b.read("asked"))
	}
}

func TestADiskThatOnePortalHasIsUsedThoughAnotherDoesNotAnswer(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("sys/block/dm-3/slaves/sd2/")
	b.make("dev/dm-3")
	b.make("refuses/login-192.0.2.2:3260")
	b.setUp(b.inline("uid-1", "v", source(0, "192.0.2.2")))
	if n := strings.Count(b.read("asked"), "-p 192.0.2.2:3260 -T "+iqn+" -I default --login"); n != mostTries {
		t.Errorf("the other was tried %d times", n)
	}
}

// TestPortalsThatDoNotAnswerHoldATargetForAWhileOnly: others wait for its turn.
func TestPortalsThatDoNotAnswerHoldATargetForAWhileOnly(t *testing.T) {
	b := newBench(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("sys/block/dm-3/slaves/sd2/")
	b.make("dev/dm-3")
	synctest.Test(t, func(t *testing.T) {
		b.t = t
		b.restart()
		b.deps.Run = func(ctx context.Context, _ string, args ...string) (string, error) {
			switch line := strings.Join(args, " "); {
			case strings.HasSuffix(line, "-o show"):
				return "iface.transport_name = tcp\n", nil
			case strings.HasSuffix(line, "--login") && strings.Contains(line, portal):
				begin(b.host, portal)
			case strings.HasSuffix(line, "--login"):
				ctx, cancel := context.WithTimeout(ctx, programWithin)
				defer cancel()
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "", nil
		}
		began := time.Now()
		b.setUp(b.inline("uid-1", "v", source(0, "192.0.2.2", "192.0.2.3", "192.0.2.4")))
		if took := time.Since(began); took > attachWithin {
			t.Errorf("it took %v", took)
		}
	})
}

func TestADiskIsWaitedForUntilItsLinkIsThere(t *testing.T) {
	b := newBench(t)
	link := "by-path/ip-" + portal + "-iscsi-" + iqn + "-lun-7"
	made := make(chan struct{})
	go func() {
		defer close(made)
		for range 6000 {
			if b.read("sys/class/scsi_host/host2/scan") == "0 0 7" {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		makeDisk(b.host, "sdx", link)
	}()
	b.setUp(b.inline("uid-1", "v", source(7)))
	<-made
}

func TestWhatAProgramWouldReadAsAnOptionIsRefused(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*v1.ISCSIVolumeSource){
		"portal": func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "-p:1" }, "iqn": func(s *v1.ISCSIVolumeSource) { s.IQN = "iqn.a/../../b" },
		"iscsiInterface": func(s *v1.ISCSIVolumeSource) { s.ISCSIInterface = ".." }, "lun": func(s *v1.ISCSIVolumeSource) { s.Lun = -1 },
		"initiatorName": func(s *v1.ISCSIVolumeSource) { odd := "a b"; s.InitiatorName = &odd },
	} {
		r := b.inline("uid-1", "v", source(0))
		change(r.Volume.ISCSI)
		if err := b.Attach(t.Context(), r); podstate.VolumeCauseOf(err) != podstate.VolumeSpec || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.held) != 0 || b.read("asked") != "" {
		t.Errorf("%q, %s", b.held, b.read("asked"))
	}
}

func TestAWaitForADiskEndsWithThePod(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := b.Setup(ctx, b.inline("uid-1", "v", source(0))); podstate.VolumeCauseOf(err) != podstate.VolumeTarget || time.Since(began) > 30*time.Second {
		t.Errorf("%v, after %v", err, time.Since(began))
	}
}
