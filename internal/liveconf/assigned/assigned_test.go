package assigned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// aNode is one with a file and a source over it.
type aNode struct {
	*testing.T
	file string
	cfg  Config
	said []string
}

func newNode(t *testing.T) *aNode {
	t.Helper()
	n := &aNode{T: t, file: filepath.Join(t.TempDir(), "kubelet.yaml")}
	n.write("maxPods: 10\n")
	n.cfg = Config{Dir: filepath.Join(t.TempDir(), "dynamic"), Node: "n", Load: func(over *kubeletconfig.Over) (*kubeletconfig.Loaded, error) {
		return kubeletconfig.LoadOver([]string{"--config=" + n.file, "--hostname-override=n"}, over)
	}, Log: funcr.New(func(_, line string) { n.said = append(n.said, line) }, funcr.Options{})}
	return n
}

func (n *aNode) write(text string) {
	n.Helper()
	if err := os.WriteFile(n.file, []byte(head+text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// wellRun is a source of a node that has run well with its file alone.
func (n *aNode) wellRun() *Source {
	n.Helper()
	s := Open(n.cfg)
	l, err := s.Load()
	if err != nil {
		n.Fatal(err)
	}
	s.Runs(l)
	s.Good(l)
	return s
}

func doc(version, text string) *Document {
	return &Document{Namespace: "ns", Name: "c", Key: "kubelet", UID: "u", ResourceVersion: version, Text: head + text}
}

// load wants this many pods, and this of what is left out.
func (n *aNode) load(s *Source, pods int32, phase liveconf.Phase, words ...string) *kubeletconfig.Loaded {
	n.Helper()
	l, err := s.Load()
	if err != nil {
		n.Fatal(err)
	}
	left := s.LeftOut()
	if l.Config.MaxPods != pods || left.Phase != phase {
		n.Errorf("%d pods, left out %+v; want %d, %q", l.Config.MaxPods, left, pods, phase)
	}
	for _, word := range words {
		if !strings.Contains(left.Error, word) {
			n.Errorf("no %q in %q", word, left.Error)
		}
	}
	return l
}

func TestWhatIsAssignedGoesOverTheFilesAndStaysOverRestarts(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	if !s.assign(doc("1", "maxPods: 20\n")) || s.assign(doc("1", "maxPods: 20\n")) {
		t.Error("something else is assigned once")
	}
	l := n.load(s, 20, "")
	s.Runs(l)
	if v := s.View(); v != (View{Assigned: "ns/c@1", Active: "ns/c@1"}) {
		t.Errorf("tried: %+v", v)
	}
	s.Good(l)
	s = Open(n.cfg) // the apiserver says nothing yet
	n.load(s, 20, "")
	if v := s.View(); v != (View{Assigned: "ns/c@1", Active: "ns/c@1", LastKnownGood: "ns/c@1"}) {
		t.Errorf("after a restart: %+v", v)
	}
	s.assign(nil)
	l = n.load(s, 10, "")
	s.Runs(l)
	s.Good(l)
	s = Open(n.cfg)
	n.load(s, 10, "")
	if v := s.View(); v != (View{}) {
		t.Errorf("taken away: %+v", v)
	}
}

// TestAnErrorIsNotShownBesideADocumentThatItIsNotAbout: who rolls a mend out would take it
// for the mend's.
func TestAnErrorIsNotShownBesideADocumentThatItIsNotAbout(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	s.assign(doc("1", "readOnlyPort: 10255\n"))
	n.load(s, 10, liveconf.Refused, "readOnlyPort")
	if v := s.View(); v.Assigned != "ns/c@1" || v.Error == "" {
		t.Errorf("refused: %+v", v)
	}
	s.assign(doc("2", "maxPods: 20\n"))
	if v := s.View(); v.Assigned != "ns/c@2" || v.Error != "" {
		t.Errorf("not looked at yet: %+v", v)
	}
	s.assign(nil)
	if v := s.View(); v.Error != "" {
		t.Errorf("taken away: %+v", v)
	}
}

// TestWhatIsWrongWithADocumentIsSaidInKilobytes: it is written into a file for nodestatus,
// in memory, and people read it.
func TestWhatIsWrongWithADocumentIsSaidInKilobytes(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	text := strings.Builder{}
	for i := range 5000 {
		fmt.Fprintf(&text, "  s%d: é\n", i)
	}
	s.assign(doc("1", "evictionHard:\n"+text.String()))
	n.load(s, 10, liveconf.Refused, "evictionHard")
	if v := s.View(); len(v.Error) > 20<<10 || !utf8.ValidString(v.Error) || v.Error != s.LeftOut().Error {
		t.Errorf("%d bytes are said", len(v.Error))
	}
}

func TestADocumentIsCalledAsAConfigMapCanBe(t *testing.T) {
	if err := doc("12", "").CheckNames(); err != nil || (*Document)(nil).CheckNames() != nil {
		t.Error(err)
	}
	long := strings.Repeat("x", mostOfAName+1)
	for name, change := range map[string]func(*Document){
		"none": func(d *Document) { *d = Document{} }, "namespace": func(d *Document) { d.Namespace = long }, "name": func(d *Document) { d.Name = "a\nb" },
		"key": func(d *Document) { d.Key = long }, "uid": func(d *Document) { d.UID = long }, "version": func(d *Document) { d.ResourceVersion = "1\x1b[2J" },
	} {
		d := doc("12", "")
		if change(d); d.CheckNames() == nil {
			t.Error(name)
		}
	}
}

func TestABadOneIsLeftOutAndTheOneBeforeComesBack(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	s.assign(doc("1", "maxPods: 20\n"))
	good := n.load(s, 20, "")
	s.Good(good)
	s.assign(doc("2", "maxPods: 30\n"))
	bad := n.load(s, 30, "")
	s.Runs(bad)
	if !s.Bad(bad, good, "maxPods: 20 → 30: podsync ended", "/kept/bad-1.json") {
		t.Error("it is not left out")
	}
	check := func(s *Source) {
		t.Helper()
		n.load(s, 20, liveconf.WentBack, "podsync ended")
		if left := s.LeftOut(); left.Of != "ConfigMap ns/c" || left.File != "/kept/bad-1.json" {
			t.Errorf("%+v", left)
		}
	}
	check(s)
	s.Runs(good)
	if v := s.View(); v.Assigned != "ns/c@2" || v.Active != "ns/c@1" || v.LastKnownGood != "ns/c@1" || v.Error == "" {
		t.Errorf("%+v", v)
	}
	s = Open(n.cfg)
	check(s)
	n.write("maxPods: 10\npodPidsLimit: 7\n") // the files go on
	if l := n.load(s, 20, liveconf.WentBack); *l.Config.PodPidsLimit != 7 {
		t.Error("a bad ConfigMap keeps a file from being used")
	}
	s.assign(doc("3", "maxPods: 30\n"))
	n.load(s, 20, liveconf.WentBack) // it says the same
	other := n.cfg
	other.Build = "the next"
	n.load(Open(other), 30, "")
	s.Retry()
	n.load(s, 30, "")
}

func TestAFileThatIsBadIsNotTheClustersFault(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	s.assign(doc("1", "podPidsLimit: 5\n"))
	good := n.load(s, 10, "")
	s.Good(good)
	n.write("maxPods: 11\n")
	if bad := n.load(s, 11, ""); s.Bad(bad, good, "why", "") {
		t.Error("the ConfigMap is left out for the file")
	}
	n.load(s, 11, "")
	s.assign(nil)
	if without := n.load(s, 11, ""); s.Bad(without, good, "why", "") {
		t.Error("nothing can be left out of the files alone")
	}
}

func TestAPersonsWayBackIsToTheOneBefore(t *testing.T) {
	n := newNode(t)
	s := n.wellRun()
	s.assign(doc("1", "maxPods: 20\n"))
	first := n.load(s, 20, "")
	s.Good(first)
	s.assign(doc("2", "maxPods: 30\n"))
	second := n.load(s, 30, "")
	s.Good(second)
	s = Open(n.cfg)
	s.Bad(second, first, "taken back by polylet config rollback", "")
	n.load(s, 20, liveconf.WentBack, "rollback")
}

func TestWhatTheClusterMayNotSayIsRefusedByName(t *testing.T) {
	n := newNode(t)
	n.write("maxPods: 10\nauthentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n")
	s := n.wellRun()
	s.assign(doc("1", "maxPods: 20\nauthentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n")) // as kubeadm's has it
	good := n.load(s, 20, "")
	s.Good(good)
	for text, word := range map[string]string{
		"maxPods: 30\nauthentication: {anonymous: {enabled: true}}\n": "authentication.anonymous.enabled",
		"maxPods: 30\nstaticPodPath: /tmp\n":                          "staticPodPath",
		"maxPods: 30\nresolvConf: null\npodsPerCore: -1\n":            "podsPerCore",
		"maxPods: many\n":                       "decode",
		"maxPods: 30\nkubeReserved: {cpu: x}\n": "kubeReserved",
	} {
		s.assign(doc("2", text))
		n.load(s, 20, liveconf.Refused, "ns/c@2", word)
	}
	if v := s.View(); v.Assigned != "ns/c@2" || v.LastKnownGood != "ns/c@1" || v.Error == "" {
		t.Errorf("%+v", v)
	}
	n.write("maxPods: 10\nauthentication: {x509: {clientCAFile: /other/ca.crt}}\n")
	n.load(s, 10, liveconf.Refused) // of the old one, too: it says another CA
	n.write("maxPods: many\n")
	if _, err := s.Load(); err == nil || !strings.Contains(err.Error(), n.file) {
		t.Errorf("files that cannot be used: %v", err)
	}
}

func TestAMachineThatCannotDoWhatTheClusterSaysGoesOnWithoutIt(t *testing.T) {
	n := newNode(t)
	n.cfg.Check = func(l *kubeletconfig.Loaded) error {
		if l.Config.MaxPods == 20 {
			return errors.New("not on this machine")
		}
		return nil
	}
	s := n.wellRun()
	s.assign(doc("1", "maxPods: 20\n"))
	n.load(s, 10, liveconf.Refused, "not on this machine")
}

func TestANodeIsGoodByItselfBeforeTheClusterSaysAnything(t *testing.T) {
	n := newNode(t)
	s := Open(n.cfg)
	s.assign(doc("1", "maxPods: 20\n"))
	l := n.load(s, 10, "")
	if !s.Good(l) {
		t.Error("it is not said that there is more now")
	}
	n.load(s, 20, "")
}

func TestDamagedAndForeignRecordsCountAsNotThere(t *testing.T) {
	for _, what := range []string{"damaged", "foreign"} {
		n := newNode(t)
		s := n.wellRun()
		s.assign(doc("1", "maxPods: 20\n"))
		path := filepath.Join(n.cfg.Dir, assignedFile)
		if what == "damaged" {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(raw), "maxPods: 20", "maxPods: 90", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			n.cfg.Node = "another"
		}
		n.load(Open(n.cfg), 10, "")
		if !strings.Contains(strings.Join(n.said, "\n"), assignedFile) {
			t.Errorf("%s: said %q", what, n.said)
		}
	}
}

func TestADirectoryThatCannotBeWrittenLosesNothingWhileItRuns(t *testing.T) {
	n := newNode(t)
	n.cfg.Dir, n.cfg.Log = "/proc/no/such", logr.Discard()
	s := n.wellRun()
	s.assign(doc("1", "maxPods: 20\n"))
	bad := n.load(s, 20, "")
	base, err := n.cfg.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Bad(bad, base, "why", "")
	n.load(s, 10, liveconf.WentBack, "why")
}
