package realtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/test/harness/instance"
)

// probe is a test whose end is looked at.
type probe struct {
	testing.TB
	name string
	said string
}

func (p *probe) Helper()      {}
func (p *probe) Name() string { return p.name }

func (p *probe) Skipf(format string, _ ...any) { p.said = "skipped: " + format }

func (p *probe) Fatalf(_ string, args ...any) {
	err, _ := args[len(args)-1].(error)
	p.said = "failed: " + err.Error()
	panic(p)
}

// ends runs do until it fails the test.
func (p *probe) ends(do func()) {
	defer func() {
		if r := recover(); r != nil && r != any(p) {
			panic(r)
		}
	}()
	do()
}

func TestATestOnRealPartsIsSkippedUnlessItIsAskedFor(t *testing.T) {
	for set, want := range map[string]bool{"": true, "1": false} {
		t.Setenv("POLYLET_NODE_TESTS", set)
		p := &probe{TB: t}
		Asked(p, "makes namespaces")
		if strings.HasPrefix(p.said, "skipped") != want {
			t.Errorf("with %q: %q", set, p.said)
		}
	}
}

func TestWaitingEndsWithSuccessOrWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		took := Eventually(t.Context(), t, time.Minute, time.Second, "the third", func() error {
			if n++; n < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		began, p := time.Now(), &probe{TB: t}
		p.ends(func() {
			Eventually(t.Context(), p, time.Minute, time.Second, "never", func() error { return errors.New("the last") })
		})
		if p.said != "failed: the last" || time.Since(began) != 61*time.Second {
			t.Errorf("%q after %s", p.said, time.Since(began))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		p.ends(func() {
			Eventually(ended, p, time.Minute, time.Second, "never", func() error { return errors.New("it was stopped") })
		})
		if p.said != "failed: it was stopped" || time.Since(began) != 0 {
			t.Errorf("%q after %s", p.said, time.Since(began))
		}
	})
}

func TestLogsOutliveTheirInstance(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, i := &probe{TB: t, name: "TestX/a part"}, &instance.Instance{Dir: t.TempDir()}
	if err := os.WriteFile(i.Path("kubelet.log"), []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := KeepLogs(p, i, "n1", "*.log", "node/*")
	if err := os.RemoveAll(i.Dir); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "kubelet.log")); string(data) != "words" {
		t.Errorf("%q, %v", data, err)
	}
	if !strings.HasSuffix(dir, "/polylet-test-logs/TestX_a_part/n1") {
		t.Errorf("they are in %s", dir)
	}
}
