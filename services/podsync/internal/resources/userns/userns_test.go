package userns

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
)

// place is a root with the directories of these pods.
func place(t *testing.T, pods ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range pods {
		if err := os.MkdirAll(filepath.Join(root, "pods", p), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func mustMap(t *testing.T, a *Allocator, uid types.UID) Mapping {
	t.Helper()
	m, err := a.Mapping(uid)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEachPodHasARangeOfItsOwnAndKeepsIt(t *testing.T) {
	root := place(t, "a", "b", "c")
	first := New(Config{RootDir: root})
	a, b := mustMap(t, first, "a"), mustMap(t, first, "b")
	if a != (Mapping{65536, 65536}) || b != (Mapping{131072, 65536}) || mustMap(t, first, "a") != a {
		t.Errorf("a %v, b %v", a, b)
	}
	data, err := os.ReadFile(filepath.Join(root, "pods", "a", "userns"))
	want := `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`
	if err != nil || string(data) != want {
		t.Errorf("file %s, %v; want %s", data, err, want)
	}
	// Another process goes on with what is on the disk, whatever else lies there.
	if err := os.WriteFile(filepath.Join(root, "pods", "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := New(Config{RootDir: root})
	if c := mustMap(t, second, "c"); c != (Mapping{196608, 65536}) {
		t.Errorf("c %v, want the range after those of a and b", c)
	}
	if mustMap(t, second, "b") != b {
		t.Error("b has other ids after a restart")
	}
	for range 2 {
		if err := second.Release("a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "pods", "d"), 0o750); err != nil {
		t.Fatal(err)
	}
	if mustMap(t, second, "d") != a {
		t.Error("a range that was given back is not given out again")
	}
}

// Its directory stays for as long as its object does.
func TestARangeOfAPodThatHasEndedIsFreeForTheNextProcessToo(t *testing.T) {
	root := place(t, "ended", "new")
	ids := mustMap(t, New(Config{RootDir: root}), "ended")
	// This one has not looked at the disk when the pod has ended.
	if err := New(Config{RootDir: root}).Release("ended"); err != nil {
		t.Fatal(err)
	}
	if got := mustMap(t, New(Config{RootDir: root}), "new"); got != ids {
		t.Errorf("the new pod has %v, want %v", got, ids)
	}
}

func TestARangeWhoseFileStaysIsNotGivenBack(t *testing.T) {
	root := place(t, "a", "b")
	a := New(Config{RootDir: root})
	ids := mustMap(t, a, "a")
	file := filepath.Join(root, "pods", "a", "userns")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := a.Release("a"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names %s", err, file)
	}
	if mustMap(t, a, "b") == ids {
		t.Error("the range was given out again, and the next process would find it taken")
	}
}

func TestPodsThatComeAtOnceDoNotOverlap(t *testing.T) {
	var names []string
	for i := range 20 {
		names = append(names, string(rune('a'+i)))
	}
	a := New(Config{RootDir: place(t, names...)})
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for _, n := range names {
		wg.Go(func() {
			m, err := a.Mapping(types.UID(n))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[m.HostID] {
				t.Errorf("%s: %v, %v", n, m, err)
			}
			seen[m.HostID] = true
		})
	}
	wg.Wait()
}

func TestNoRangeIsGivenOutWhileOneIsUnknown(t *testing.T) {
	valid := `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`
	for name, content := range map[string]string{
		"empty": "", "cut": valid[:40], "two ranges": strings.Replace(valid, "}],", "},{}],", 1), "other groups": strings.Replace(valid, "65536", "131072", 1),
		"not ours": strings.ReplaceAll(valid, `"hostId":65536`, `"hostId":70000`), "the host's": strings.ReplaceAll(valid, `"hostId":65536`, `"hostId":0`),
		"unknown field": strings.Replace(valid, "{", `{"x":1,`, 1), "another size": strings.ReplaceAll(valid, `"length":65536`, `"length":131072`),
	} {
		t.Run(name, func(t *testing.T) {
			root := place(t, "a", "b")
			path := filepath.Join(root, "pods", "a", "userns")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			a := New(Config{RootDir: root})
			if _, err := a.Mapping("b"); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want one that names %s", err, path)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			mustMap(t, a, "b")
		})
	}
	root := place(t, "a", "b", "c")
	for _, p := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(root, "pods", p, "userns"), []byte(valid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Config{RootDir: root}).Mapping("c"); err == nil || !strings.Contains(err.Error(), "the same ids") {
		t.Errorf("two pods with the same ids: %v", err)
	}
}

func TestTheHostsRangeBoundsWhatIsGivenOut(t *testing.T) {
	for name, tc := range map[string]struct {
		host Range
		err  error
		want string // of the error of the first, or of the third pod
		ok   int
	}{
		"two ranges":    {Range{131072, 131072}, nil, "all 2 ranges", 2},
		"not asked for": {Range{}, nil, "", 3},
		"odd":           {Range{70000, 131072}, nil, "multiple of 65536", 0},
		"the host's":    {Range{0, 131072}, nil, "multiple of 65536", 0},
		"too high":      {Range{math.MaxUint32 + 1 - 65536, 131072}, nil, "multiple", 0},
		"unknown":       {Range{}, errors.New("getsubids broke"), "getsubids broke", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Config{RootDir: place(t, "a", "b", "c"), Host: func() (Range, error) { return tc.host, tc.err }})
			ok := 0
			for _, uid := range []types.UID{"a", "b", "c"} {
				m, err := a.Mapping(uid)
				if err == nil {
					ok++
					if m.HostID < uint32(tc.host.First) {
						t.Errorf("%v is outside of %v", m, tc.host)
					}
				} else if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
			}
			if ok != tc.ok {
				t.Errorf("%d pods have a range, want %d", ok, tc.ok)
			}
		})
	}
}

func TestARangeThatCannotBeKeptIsNotGivenOut(t *testing.T) {
	a := New(Config{RootDir: place(t, "b")})
	if _, err := a.Mapping("a"); err == nil {
		t.Error("a pod without a directory got ids that nobody remembers")
	}
	if m := mustMap(t, a, "b"); m.HostID != 65536 {
		t.Errorf("%v: the first range is lost", m)
	}
}

func TestWhatGetsubidsSays(t *testing.T) {
	for out, want := range map[string]Range{
		"0: kubelet 65536 7208960\n": {65536, 7208960}, "": {}, "0: kubelet 1 2\n1: kubelet 3 4\n": {}, "0: kubelet x 2": {}, "0: kubelet 1 -2": {},
	} {
		if got, err := parse(out); got != want || (err == nil) != (want != Range{}) {
			t.Errorf("%q: %v, %v; want %v", out, got, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := decode(data); err != nil && m != (Mapping{}) {
			t.Errorf("an error with %v", m)
		}
	})
}

func TestAPodWhoseFileIsSlowToWriteKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{RootDir: place(t, "slow", "b", "c")})
		write, slow := a.write, make(chan struct{})
		a.write = func(path string, data []byte, mode os.FileMode) error {
			if strings.Contains(path, "slow") {
				<-slow
			}
			return write(path, data, mode)
		}
		got := make(chan Mapping, 2)
		for range 2 {
			go func() {
				m, err := a.Mapping("slow")
				if err != nil {
					t.Error(err)
				}
				got <- m
			}()
		}
		synctest.Wait()
		b, c := mustMap(t, a, "b"), mustMap(t, a, "c")
		if err := a.Release("c"); err != nil {
			t.Error(err)
		}
		close(slow)
		first, second := <-got, <-got
		if first != second || first == b || first == c || b == c {
			t.Errorf("the slow pod has %v and %v, the others %v and %v", first, second, b, c)
		}
	})
}

// The file of a write that failed may be there after all.
func TestARangeWhoseFileCouldNotBeWrittenIsGivenToNoOtherPod(t *testing.T) {
	a := New(Config{RootDir: place(t, "a", "b")})
	write := a.write
	a.write = func(path string, data []byte, mode os.FileMode) error {
		return errors.Join(write(path, data, mode), errors.New("the directory could not be synced"))
	}
	if _, err := a.Mapping("a"); err == nil {
		t.Fatal("a write that failed is not told")
	}
	a.write = write
	if b := mustMap(t, a, "b"); b.HostID != 131072 {
		t.Errorf("b has %v", b)
	}
	if m := mustMap(t, a, "a"); m.HostID != 65536 {
		t.Errorf("a has %v", m)
	}
	if again := mustMap(t, New(Config{RootDir: a.cfg.RootDir}), "a"); again.HostID != 65536 {
		t.Errorf("after a restart a has %v", again)
	}
}
