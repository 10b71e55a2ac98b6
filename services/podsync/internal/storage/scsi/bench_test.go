package scsi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// TestMain is also the programs of the host.
func TestMain(m *testing.M) {
	if code, is := partly(); is {
		os.Exit(code)
	}
	if program := standIns()[filepath.Base(os.Args[0])]; program != nil {
		said, code := program(os.Getenv(hostEnv), os.Args[1:])
		fmt.Print(said)
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// hostEnv names the directory of a machine for its programs.
const hostEnv = "POLYLET_TEST_HOST"

// standIns are for the programs of the host: they get its directory and their arguments, and
// return what they say and their code.
func standIns() map[string]func(host string, args []string) (string, int) {
	return map[string]func(string, []string) (string, int){"iscsiadm": iscsiadm, "multipath": multipath}
}

// bench is a machine with sysfs and devices of its own, and Volumes on it.
type bench struct {
	*Volumes
	t      *testing.T
	host   string
	mounts *mount.Fake
	boot   string // empty is the first
	// programs runs those of the host.
	programs func(ctx context.Context, program string, args ...string) (string, error)

	mu      sync.Mutex
	held    []v1.UniqueVolumeName
	own     bool // the last of them is in the pod's own spec
	settled []v1.UniqueVolumeName
	secrets map[string]map[string][]byte
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, host: t.TempDir(), mounts: mount.NewFake(), secrets: map[string]map[string][]byte{}}
	b.programs = b.here
	for _, dir := range []string{"sys/class/iscsi_host", "sys/class/scsi_host", "sys/block", "dev/disk", "root/pods"} {
		b.make(dir + "/")
	}
	b.restart()
	return b
}

// here has a stand-in do a program's work in this process: to begin one takes longer than
// most tests do.
func (b *bench) here(_ context.Context, program string, args ...string) (string, error) {
	said, code := standIns()[program](b.host, args)
	if code != 0 {
		return said, &failure{program, code, said}
	}
	return said, nil
}

// newBenchOfProcesses is a machine whose programs are processes.
func newBenchOfProcesses(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b.make("bin/")
	for program := range standIns() {
		if err := os.Symlink(self, filepath.Join(b.host, "bin", program)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(b.host, "bin"))
	t.Setenv(hostEnv, b.host)
	b.programs = run
	b.restart()
	return b
}

// restart is a new process: nothing is in memory.
func (b *bench) restart() {
	b.Volumes = New(Config{RootDir: filepath.Join(b.host, "root"), Sys: filepath.Join(b.host, "sys"), Dev: filepath.Join(b.host, "dev"), Boot: cmp.Or(b.boot, "boot-1")}, Deps{
		Objects: b, InUse: b, Mounter: b.mounts, Same: b.same, Run: b.programs,
	})
}

// make makes a file of the machine with a text, or a directory.
func (b *bench) make(path string, text ...string) { makeFile(filepath.Join(b.host), path, text...) }

func makeFile(host, path string, text ...string) {
	at := filepath.Join(host, path)
	if strings.HasSuffix(path, "/") {
		_ = os.MkdirAll(at, 0o755)
		return
	}
	_ = os.MkdirAll(filepath.Dir(at), 0o755)
	_ = os.WriteFile(at, []byte(strings.Join(text, "")), 0o600)
}

func (b *bench) read(path string) string {
	raw, err := os.ReadFile(filepath.Join(b.host, path))
	if err != nil {
		return ""
	}
	return string(raw)
}

// same follows what is bound to its device.
func (b *bench) same(one, two string) bool { return b.origin(one) == b.origin(two) }

func (b *bench) origin(at string) string {
	for b.mounts.Source(at) != "" {
		at = b.mounts.Source(at)
	}
	return at
}

func (b *bench) Hold(_ context.Context, _ *v1.Pod, name v1.UniqueVolumeName, own, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.own = append(b.held, name), own
	return nil
}

func (b *bench) SettleSoon(name v1.UniqueVolumeName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = append(b.settled, name)
}

func (b *bench) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	data, is := b.secrets[namespace+"/"+name]
	if !is {
		return nil, fmt.Errorf("secrets %q not found", name)
	}
	return &v1.Secret{Data: data}, nil
}

// settleAll does what was asked for, and wants that nothing fails.
func (b *bench) settleAll() {
	b.t.Helper()
	b.mu.Lock()
	names := b.settled
	b.settled = nil
	b.mu.Unlock()
	for _, name := range names {
		if _, err := b.Settle(b.t.Context(), name); err != nil {
			b.t.Error(err)
		}
	}
}

// settlesTheOne settles the one disk that is left, after which nothing is.
func (b *bench) settlesTheOne() {
	b.t.Helper()
	names, err := b.Left()
	if err != nil || len(names) != 1 {
		b.t.Fatalf("%q, %v", names, err)
	}
	if left, err := b.Settle(b.t.Context(), names[0]); left || err != nil {
		b.t.Errorf("%v, %v", left, err)
	}
	b.bare()
}

// hasNoSession: the one that was begun was ended, and its record is gone.
func (b *bench) hasNoSession() {
	b.t.Helper()
	if !b.wasAsked(node+"--logout") || b.read(recordOfPortal) != "" {
		b.t.Errorf("the session stays; asked\n%s", b.read("asked"))
	}
}

const (
	iqn    = "iqn.2001-04.example:d"
	portal = "192.0.2.1:3260"
)

// othersRecord is the record of another target in iscsiadm's database.
const othersRecord = "iqn.2002-05.example:admin/203.0.113.1:3260"

// source is a LUN of the target, in a pod's spec.
func source(lun int32, portals ...string) v1.VolumeSource {
	return v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: iqn, Lun: lun, ISCSIInterface: "default", Portals: portals}}
}

func (b *bench) inline(uid, name string, of v1.VolumeSource) volume.Request {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
	kind := "iscsi"
	if of.FC != nil {
		kind = "fc"
	}
	return volume.Request{Pod: pod, Volume: &v1.Volume{Name: name, VolumeSource: of}, Dir: b.podDir(uid, "volumes", kind, name)}
}

func (b *bench) podDir(uid, what, kind, name string) string {
	return filepath.Join(b.host, "root", "pods", uid, what, "kubernetes.io~"+kind, name)
}

// claimed is the same for a claim.
func (b *bench) claimed(uid, pv string, of v1.PersistentVolumeSource, mode v1.PersistentVolumeMode) volume.Request {
	r := b.inline(uid, "v", v1.VolumeSource{FC: of.FC})
	kind, what := "iscsi", "volumes"
	if of.FC != nil {
		kind = "fc"
	}
	if mode == v1.PersistentVolumeBlock {
		what = "volumeDevices"
	}
	r.Dir = b.podDir(uid, what, kind, pv)
	r.PV = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv}, Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: of, VolumeMode: &mode}}
	return r
}

func (b *bench) setUp(r volume.Request) {
	b.t.Helper()
	if err := b.Attach(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	if made, err := b.Setup(b.t.Context(), r); err != nil || made.Path != r.Dir {
		b.t.Fatalf("%q, %v", made.Path, err)
	}
}

func remains(r volume.Request) volume.Remains {
	return volume.Remains{UID: r.Pod.UID, Name: filepath.Base(r.Dir), Dir: r.Dir}
}

// takeDown takes a pod's volume down, and the pod's directory.
func (b *bench) takeDown(r volume.Request) {
	b.t.Helper()
	end := b.Teardown
	if r.PV != nil && *r.PV.Spec.VolumeMode == v1.PersistentVolumeBlock {
		end = b.Unmap
	}
	for range 2 {
		if err := end(b.t.Context(), remains(r)); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := os.Lstat(r.Dir); err == nil {
		b.t.Errorf("%s is left", r.Dir)
	}
}

// bare wants that nothing is left of volumes.
func (b *bench) bare() {
	b.t.Helper()
	if left := b.mounts.Mounts(); len(left) != 0 {
		b.t.Errorf("mounted are %q", left)
	}
	_ = filepath.WalkDir(filepath.Join(b.host, "root", "plugins"), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			b.t.Errorf("left is %s", path)
		}
		return nil
	})
	if left, err := b.Left(); len(left) != 0 || err != nil {
		b.t.Errorf("left are %q, %v", left, err)
	}
}

// asked is what the programs were asked for.
func (b *bench) asked() []string {
	return strings.Split(strings.TrimSuffix(b.read("asked"), "\n"), "\n")
}

func (b *bench) wasAsked(want string) bool { return slices.Contains(b.asked(), want) }

// makeDisk makes a disk of the machine, with links to it.
func makeDisk(host, name string, links ...string) {
	makeFile(host, "dev/"+name)
	makeFile(host, "sys/block/"+name+"/device/delete")
	for _, link := range links {
		at := filepath.Join(host, "dev/disk", link)
		_ = os.MkdirAll(filepath.Dir(at), 0o755)
		_ = os.Symlink("../../"+name, at)
	}
}

// iscsiadm stands in for that: it has a session be seen once it is begun, with the disks
// that the target has (a JSON file with names, by LUN).
func iscsiadm(host string, args []string) (said string, code int) {
	note(host, "iscsiadm "+strings.Join(args, " "))
	of := map[string]string{}
	for i, a := range args {
		if i+1 < len(args) {
			of[a] = args[i+1]
		}
	}
	refuses := func(what string) bool {
		_, err := os.Stat(filepath.Join(host, "refuses", what))
		return err == nil
	}
	switch line := strings.Join(args, " "); {
	case strings.HasSuffix(line, "-m speaks"):
		return strings.Repeat("x", 1<<20), 0
	case strings.HasSuffix(line, "-o show") && of["-m"] == "node":
		record, err := os.ReadFile(filepath.Join(host, "nodes", of["-T"], of["-p"]))
		if err != nil {
			return "iscsiadm: No records found\n", codeNoObject
		}
		return string(record), 0
	case strings.HasSuffix(line, "-o show"):
		return "# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n# END RECORD\n", 0
	case strings.HasSuffix(line, "--discover"):
		makeFile(host, "nodes/"+othersRecord, "as the target says")
		makeFile(host, "nodes/iqn.2001-04.example:further/"+portal, "as the target says")
	case strings.HasSuffix(line, "-o new") && of["-m"] == "node":
		makeFile(host, "nodes/"+of["-T"]+"/"+of["-p"], "# BEGIN RECORD 2.1.8\nnode.startup = automatic\nnode.session.scan = auto\n# END RECORD\n")
	case strings.Contains(line, "-o update") && of["-m"] == "node":
		at := filepath.Join(host, "nodes", of["-T"], of["-p"])
		record, _ := os.ReadFile(at)
		lines := slices.DeleteFunc(strings.SplitAfter(string(record), "\n"), func(l string) bool { return strings.HasPrefix(l, of["-n"]+" = ") })
		_ = os.WriteFile(at, []byte(strings.Join(lines, "")+of["-n"]+" = "+of["-v"]+"\n"), 0o600)
	case strings.HasSuffix(line, "-o delete") && of["-m"] == "node":
		_ = os.Remove(filepath.Join(host, "nodes", of["-T"], of["-p"]))
	case strings.HasSuffix(line, "--login"):
		if refuses("login") || refuses("login-"+of["-p"]) {
			return "iscsiadm: cannot make connection to " + of["-p"] + "\n", 24
		}
		begin(host, of["-p"])
	case strings.HasSuffix(line, "--logout") && refuses("logout-"+of["-p"]):
		return "iscsiadm: initiator reported error (9 - internal error)\n", 9
	case strings.HasSuffix(line, "--logout"):
		found, _ := filepath.Glob(filepath.Join(host, "sys/class/iscsi_host/host*/device/session*/connection*/iscsi_connection/*/address"))
		if len(found) == 0 {
			return "", codeNoObject
		}
		for _, at := range found {
			if raw, _ := os.ReadFile(at); strings.HasPrefix(of["-p"], string(raw)+":") {
				_ = os.RemoveAll(strings.Split(at, "/device/session")[0])
			}
		}
	}
	return "", 0
}

// begin has a session with the target be seen.
func begin(host, portal string) {
	hosts, _ := filepath.Glob(filepath.Join(host, "sys/class/iscsi_host/host*"))
	n := len(hosts) + 2
	address, port, _ := strings.Cut(portal, ":")
	session := fmt.Sprintf("sys/class/iscsi_host/host%d/device/session%d/", n, n)
	makeFile(host, fmt.Sprintf("sys/class/scsi_host/host%d/scan", n))
	makeFile(host, session+fmt.Sprintf("iscsi_session/session%d/targetname", n), iqn+"\n")
	for _, kind := range []string{"", "persistent_"} {
		at := session + fmt.Sprintf("connection%d:0/iscsi_connection/connection%d:0/%s", n, n, kind)
		makeFile(host, at+"address", address)
		makeFile(host, at+"port", port)
	}
	var disks map[string]string
	raw, _ := os.ReadFile(filepath.Join(host, "target.json"))
	_ = json.Unmarshal(raw, &disks)
	for lun, name := range disks {
		name += fmt.Sprint(n)
		makeDisk(host, name, "by-path/ip-"+portal+"-iscsi-"+iqn+"-lun-"+lun)
		makeFile(host, session+fmt.Sprintf("target%d:0:0/%d:0:0:%s/block/%s/", n, n, lun, name))
	}
}

func multipath(host string, args []string) (said string, code int) {
	note(host, "multipath "+strings.Join(args, " "))
	_ = os.RemoveAll(filepath.Join(host, "sys/block", filepath.Base(args[len(args)-1])))
	return "", 0
}

func note(host, line string) {
	f, err := os.OpenFile(filepath.Join(host, "asked"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}
