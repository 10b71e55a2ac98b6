package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestWhatIsNoManifestIsNamedWithItsMendAndHoldsNothingUp(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a link to nothing": {func(p string) error { return os.Symlink("/nowhere", p) }, "a symbolic link to nothing; correct or remove it"},
		"a named pipe":      {func(p string) error { return syscall.Mkfifo(p, 0o600) }, "not a regular file"},
		"a huge file":       {func(p string) error { return os.Truncate(must(os.Create(p)), 10<<20+1) }, "has more than 10485760 bytes"},
		"other characters":  {func(p string) error { return os.WriteFile(p, []byte("kind: Pod\xff\xfe"), 0o600) }, "not UTF-8 text; save it in that encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startFiles(t, nil)
				if err := c.make(filepath.Join(b.dir, "a.yaml")); err != nil {
					t.Fatal(err)
				}
				b.write("b.yaml", podText("b", ""))
				b.want("b-node")
				if got := b.health["static pods"]; !strings.Contains(got, c.want) || !strings.Contains(got, "a.yaml") {
					t.Errorf("health %q, want %q", got, c.want)
				}
				b.remove("a.yaml")
				if len(b.health) != 0 {
					t.Errorf("health %v", b.health)
				}
			})
		})
	}
}

func must(f *os.File, err error) string {
	if err != nil {
		panic(err)
	}
	defer f.Close()
	return f.Name()
}

func TestALinkToAManifestAndADirectoryBehindALinkAreTakenForWhatTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		elsewhere := b.TempDir()
		if err := os.WriteFile(filepath.Join(elsewhere, "x"), []byte(podText("linked", "")), 0o600); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{"a.yaml": filepath.Join(elsewhere, "x"), "dir": elsewhere} {
			if err := os.Symlink(to, filepath.Join(b.dir, from)); err != nil {
				t.Fatal(err)
			}
		}
		b.changed()
		b.want("linked-node")
		if len(b.health) != 0 {
			t.Errorf("health %v", b.health)
		}
	})
}

func TestHundredsOfFilesOfWhichEachThirdIsBrokenRunTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, func(dir string) {
			for i := range 300 {
				text := podText(fmt.Sprintf("p%d", i), "")
				if i%3 == 0 {
					text = text[:len(text)/2]
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n := len(b.names()); n != 200 {
			t.Errorf("%d pods run", n)
		}
		if n := strings.Count(b.health["static pods"], "static pod manifest"); n != 10 || !strings.Contains(b.health["static pods"], "90 more") || len(b.events) != 100 {
			t.Errorf("%d problems in health, %d events: %s", n, len(b.events), b.health["static pods"])
		}
	})
}

func TestOnlyTheFirstDocumentOfAFileCountsAndThatIsSaid(t *testing.T) {
	decoder, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	pod, unknown, err := decoder.decode([]byte("# c\n---\n" + podText("a", "") + "---\n" + podText("b", "  spelt: wrong\n")))
	if err != nil || pod.Name != "a" || !strings.Contains(unknown, "more than one YAML document") {
		t.Errorf("%v %q %v", pod, unknown, err)
	}
	if _, unknown, err = decoder.decode([]byte("---\n" + podText("a", "  spelt: wrong\n") + "---\n# end\n")); err != nil || unknown != `strict decoding error: unknown field "spec.spelt"` {
		t.Errorf("%q %v", unknown, err)
	}
}

// A pod that the sink has not been given may be that of a manifest which was good
// before this process started.
func TestAManifestThatWasNeverReadIsInDoubtUntilItIs(t *testing.T) {
	broken := "broken: ["
	for name, tc := range map[string]struct {
		before func(b *fileBench)
		then   func(b *fileBench)
		doubts []string
	}{
		"it is corrected":                   {func(b *fileBench) { b.write("a.yaml", broken) }, func(b *fileBench) { b.write("a.yaml", podText("a", "")) }, []string{"file true", "file false"}},
		"it is removed":                     {func(b *fileBench) { b.write("a.yaml", broken) }, func(b *fileBench) { b.remove("a.yaml") }, []string{"file true", "file false"}},
		"another one is broken, too":        {func(b *fileBench) { b.write("a.yaml", broken) }, func(b *fileBench) { b.write("b.yaml", broken); b.remove("a.yaml") }, []string{"file true"}},
		"one that was good is broken":       {func(b *fileBench) { b.write("a.yaml", podText("a", "")) }, func(b *fileBench) { b.write("a.yaml", broken) }, nil},
		"all are good":                      {func(b *fileBench) { b.write("a.yaml", podText("a", "")) }, func(b *fileBench) { b.write("a.yaml", podText("b", "")) }, nil},
		"the path cannot be listed later":   {func(b *fileBench) { b.write("a.yaml", podText("a", "")) }, func(b *fileBench) { b.unlistable() }, nil},
		"the path cannot be listed, and is": {func(b *fileBench) { b.unlistable() }, func(b *fileBench) { b.listable() }, []string{"file true", "file false"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
				b.quiet = true
				tc.before(b)
				s, err := New(Config{NodeName: "Node", StaticPodPath: b.dir + "/."}, Deps{Notifier: byHand{b.poke}, Health: reporter{b.recorder}, Events: noter{b.recorder}, Mirrors: b.recorder})
				if err != nil {
					t.Fatal(err)
				}
				b.run(s)
				b.quiet = false
				if len(b.doubts) != len(tc.doubts[:min(1, len(tc.doubts))]) || !slices.Contains(b.ready, File) {
					t.Errorf("at the start: doubts %q, ready %q", b.doubts, b.ready)
				}
				tc.then(b)
				if !slices.Equal(b.doubts, tc.doubts) {
					t.Errorf("doubts %q; want %q", b.doubts, tc.doubts)
				}
			})
		})
	}
}

func TestAFileThatGrowsBeyondTheBoundIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFiles(t, nil)
		for size := int64(20 << 20); size < 30<<20; size += 1 << 20 {
			if err := os.WriteFile(filepath.Join(b.dir, "log"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(b.dir, "log"), size); err != nil {
				t.Fatal(err)
			}
			b.changed()
		}
		if len(b.events) != 1 {
			t.Errorf("%d events; want one: %q", len(b.events), b.events)
		}
	})
}
