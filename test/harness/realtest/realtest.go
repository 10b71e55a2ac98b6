// Package realtest is what all tests on real parts do: they run only when they are
// asked for, own an instance that leaves nothing, wait until something is so, and keep
// the logs of what failed. It must never start a part of a node.
package realtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
)

// Asked skips the test unless POLYLET_NODE_TESTS asks for tests on real parts; why
// says what makes it one, as in "makes namespaces as root".
func Asked(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("POLYLET_NODE_TESTS") == "" {
		t.Skipf("%s; set POLYLET_NODE_TESTS=1 to run it", why)
	}
}

// Begin is Asked for a test that wants what `make run` installs. The test ends with
// the context that it returns, at the latest.
func Begin(t testing.TB, why string, within time.Duration) context.Context {
	t.Helper()
	Asked(t, why)
	if err := install.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

// Instance makes an instance, and removes it when the test ends.
func Instance(t testing.TB) *instance.Instance {
	t.Helper()
	i, err := instance.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Remove(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// Eventually asks every so often until check returns nil, and says how long that
// took; the test fails with the last error of check.
func Eventually(ctx context.Context, t testing.TB, within, every time.Duration, what string, check func() error) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		err := check()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > within || ctx.Err() != nil {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(every)
	}
}

// KeepLogs copies what the patterns match below an instance to a directory that
// outlives it, and says where: one for the test, or for a part of it.
func KeepLogs(t testing.TB, i *instance.Instance, part string, patterns ...string) (dir string) {
	name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())
	dir = filepath.Join(os.TempDir(), "polylet-test-logs", name, part)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Log(err)
		return dir
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(i.Path(pattern))
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil {
				_ = os.WriteFile(filepath.Join(dir, filepath.Base(f)), data, 0o644) // best effort on the way out
			}
		}
	}
	return dir
}
