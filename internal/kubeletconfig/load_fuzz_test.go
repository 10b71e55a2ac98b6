package kubeletconfig

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// handsOver checks that what was loaded is handed over, and kept, whole: nothing of it is
// lost or becomes something else on the way to a service.
func handsOver(t *testing.T, l *Loaded, args []string) {
	t.Helper()
	flag := sliceOf(t, filepath.Join(t.TempDir(), "slice.json"), NewSlice(l, 1, "sha256:x", true))
	got, err := load(append(slices.Clone(args), flag), logr.Discard())
	if err != nil {
		t.Fatalf("what is valid is not, handed over: %v", err)
	}
	kept, err := OfDocument(args, l.SecretCopyJSON(), l.Origins(), "")
	if err != nil {
		t.Fatalf("what is valid is not, kept: %v", err)
	}
	for _, other := range []*Loaded{got, kept} {
		for path, value := range l.Fields() {
			if other.Fields()[path] != value {
				t.Fatalf("%s is %s, and %s when it is handed over", path, value, other.Fields()[path])
			}
		}
	}
}

func FuzzFlagsAreTakenWholeOrRefused(f *testing.F) {
	f.Add("--")
	f.Add("--max-pods=5\n--eviction-hard=memory.available<5Mi")
	f.Add("--feature-gates=EnvFiles=false,AllAlpha=true\n-v\n4")
	f.Add("--system-reserved=cpu=1,memory=x\n--node-labels=a=b,c")
	f.Add("--register-with-taints=a=b:NoSchedule\n--cluster-dns=10.0.0.1\n--manifest-url-header=a:b,c:d")
	f.Add("--eviction-soft=memory.available<5%\n--eviction-soft-grace-period=memory.available=1m\n--tls-cipher-suites=x")
	f.Fuzz(func(t *testing.T, text string) {
		args := []string{"--hostname-override=n"}
		for arg := range strings.SplitSeq(text, "\n") {
			if name := strings.ReplaceAll(strings.ToLower(arg), "_", "-"); strings.Contains(name, "config") {
				return // files of this machine
			}
			args = append(args, arg)
		}
		before := slices.Clone(args)
		l, err := load(args, logr.Discard())
		if !slices.Equal(args, before) {
			t.Fatalf("the flags were %q and are %q", before, args)
		}
		if err != nil {
			return
		}
		again, err := load(args, logr.Discard())
		if err != nil || !maps.Equal(again.Fields(), l.Fields()) {
			t.Fatalf("the same flags say something else the next time: %v", err)
		}
		handsOver(t, l, l.Args) // behind which come more
	})
}

func FuzzDropInsAreMergedWholeOrRefused(f *testing.F) {
	f.Add("maxPods: 5\n", "evictionHard: {memory.available: 5Mi}\n")
	f.Add("featureGates: {EnvFiles: false}\n", "featureGates: {AllBeta: true}\n")
	f.Add("registerWithTaints: [null]\n", "logging: {options: null}\n")
	f.Add("kind: Pod\n", "staticPodURLHeader: {a: [b]}\nkubeReserved: {cpu: 1}\n")
	f.Add("tracing: {}\n", "userNamespaces: {}\nmemorySwap: {swapBehavior: x}\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		dir := t.TempDir()
		args := []string{"--config=" + write(t, t.TempDir(), "k.yaml", header+"maxPods: 7\nclusterDomain: a.example\n"), "--config-dir=" + dir, "--hostname-override=n"}
		write(t, dir, "10.conf", header+first)
		write(t, dir, "20.conf", header+second)
		if l, err := load(args, logr.Discard()); err == nil {
			handsOver(t, l, args)
		}
	})
}

func FuzzASliceIsTakenWholeOrNotAtAll(f *testing.F) {
	l, err := load([]string{"--hostname-override=n"}, logr.Discard())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(l.CopyJSON()), Sum(l.CopyJSON()), 3)
	f.Add(`{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","maxPods":4}`, "sha256:", 0)
	f.Add(`{"kind":"Kub`, "", 1)
	f.Fuzz(func(t *testing.T, document, sum string, cut int) {
		raw := `{"generation":1,"checksum":"sha256:x","document":` + document + `,"documentChecksum":"` + sum + `"}`
		if cut > 0 && cut < len(raw) {
			raw = raw[:len(raw)-cut]
		}
		got, err := load([]string{"--hostname-override=n", "--config-slice=" + write(t, t.TempDir(), "s.json", raw)}, logr.Discard())
		if err == nil && Sum(got.slice.Document) != got.slice.DocumentChecksum {
			t.Fatalf("a document is taken that is not what was handed over: %s", raw)
		}
	})
}
