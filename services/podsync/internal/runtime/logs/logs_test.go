package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

const sample = `2026-11-20T10:00:00.1Z stdout F one
2026-11-20T10:00:01Z stderr F two
2026-11-20T10:00:02Z stdout P thr
2026-11-20T10:00:02Z stdout F ee
2026-11-20T10:00:03Z stdout F 
`

func logFile(t testing.TB, text string) (*Reader, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "ns_p_uid", "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return New(Config{Root: dir}, Deps{}), path
}

func TestOptionsDecideWhatIsShown(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 4, 0, time.UTC)
	for _, tc := range []struct {
		name, text string
		opts       v1.PodLogOptions
		want       string
	}{
		{"all", sample, v1.PodLogOptions{}, "one\ntwo\nthree\n\n"},
		{"timestamps have nine digits and stand once per entry", sample, v1.PodLogOptions{Timestamps: true},
			"2026-11-20T10:00:00.100000000Z one\n2026-11-20T10:00:01.000000000Z two\n2026-11-20T10:00:02.000000000Z three\n2026-11-20T10:00:03.000000000Z \n"},
		{"tail", sample, v1.PodLogOptions{TailLines: ptr(int64(2))}, "ee\n\n"},
		{"tail of more than there is", sample, v1.PodLogOptions{TailLines: ptr(int64(99))}, "one\ntwo\nthree\n\n"},
		{"tail of nothing", sample, v1.PodLogOptions{TailLines: ptr(int64(0))}, ""},
		{"limit in the middle of a line", sample, v1.PodLogOptions{LimitBytes: ptr(int64(5))}, "one\nt"},
		{"limit at the end of a line", sample, v1.PodLogOptions{LimitBytes: ptr(int64(4))}, "one\n"},
		{"since seconds", sample, v1.PodLogOptions{SinceSeconds: ptr(int64(2))}, "three\n\n"},
		{"since before all time", sample, v1.PodLogOptions{SinceSeconds: ptr(int64(math.MaxInt64))}, "one\ntwo\nthree\n\n"},
		{"since a time", sample, v1.PodLogOptions{SinceTime: &metav1.Time{Time: now.Add(-3 * time.Second)}}, "two\nthree\n\n"},
		{"one stream", sample, v1.PodLogOptions{Stream: ptr(v1.LogStreamStderr)}, "two\n"},
		{"a last line without its end", "2026-11-20T10:00:00Z stdout F half", v1.PodLogOptions{}, "half"},
		{"lines of another format are left out", "nonsense\n\n" + sample, v1.PodLogOptions{TailLines: ptr(int64(7))}, "one\ntwo\nthree\n\n"},
		{"Docker's format", `{"log":"hello\n","stream":"stdout","time":"2026-11-20T10:00:00Z"}` + "\n", v1.PodLogOptions{}, "hello\n"},
		{"an empty message without its blank", "2026-11-20T10:00:00Z stdout F\n", v1.PodLogOptions{}, "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, path := logFile(t, tc.text)
			var out bytes.Buffer
			if err := r.Read(t.Context(), Request{Path: path, Options: &tc.opts, Now: now}, &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Fatalf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
}

func TestALineOfAnyLengthIsShownWhole(t *testing.T) {
	long := strings.Repeat("x", 3*readBlock+17)
	r, path := logFile(t, "2026-11-20T10:00:00Z stdout F "+long+"\n2026-11-20T10:00:00Z stdout F end\n")
	var out bytes.Buffer
	if err := r.Read(t.Context(), Request{Path: path}, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != long+"\nend\n" {
		t.Fatalf("%d bytes, want %d", out.Len(), len(long)+5)
	}
}

func TestTheTailIsFoundAcrossBlocks(t *testing.T) {
	var text, want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&text, "2026-11-20T10:00:00Z stdout F line %d\n", i)
		if i >= 20000-9000 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
	}
	r, path := logFile(t, text.String())
	var out bytes.Buffer
	if err := r.Read(t.Context(), Request{Path: path, Options: &v1.PodLogOptions{TailLines: ptr(int64(9000))}}, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want.String() {
		t.Fatalf("%d bytes, want %d", out.Len(), want.Len())
	}
}

func TestALinkOutOfTheLogRootShowsNothingOfTheHost(t *testing.T) {
	r, path := logFile(t, "")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("2026-11-20T10:00:00Z stdout F secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, path); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.Read(t.Context(), Request{Path: path}, &out); err == nil || out.Len() > 0 {
		t.Fatalf("read %q, error %v", out.String(), err)
	}
	if err := r.Read(t.Context(), Request{Path: secret}, &out); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("a path outside of the root: %v", err)
	}
}

// A link that a restored checkpoint brings may lead to another pod's log.
func TestALinkToAnotherPodsLogIsNotFollowed(t *testing.T) {
	const secret = "2026-11-20T10:00:00Z stdout F secret\n"
	for name, plant := range map[string]func(root, path string) error{
		"file": func(root, path string) error { return os.Symlink("../../other_pod_uid/c/0.log", path) },
		"directory": func(root, path string) error {
			return errors.Join(os.Remove(filepath.Dir(path)), os.Symlink("../other_pod_uid/c", filepath.Dir(path)))
		},
		"absolute": func(root, path string) error { return os.Symlink(filepath.Join(root, "other_pod_uid/c/0.log"), path) },
	} {
		t.Run(name, func(t *testing.T) {
			r, path := logFile(t, "")
			other := filepath.Join(r.root, "other_pod_uid", "c", "0.log")
			if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Dir(other), 0o755), os.WriteFile(other, []byte(secret), 0o644), plant(r.root, path)); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := r.Read(t.Context(), Request{Path: path}, &out); err == nil || out.Len() > 0 {
				t.Errorf("read %q, error %v", out.String(), err)
			}
			if err := r.Read(t.Context(), Request{Path: other}, &out); err != nil || out.String() != "secret\n" {
				t.Errorf("the pod's own: read %q, error %v", out.String(), err)
			}
		})
	}
}

func TestOptionsThatContradictAreRefused(t *testing.T) {
	for _, o := range []v1.PodLogOptions{
		{SinceSeconds: ptr(int64(1)), SinceTime: &metav1.Time{}}, {SinceSeconds: ptr(int64(0))}, {TailLines: ptr(int64(-1))}, {LimitBytes: ptr(int64(0))},
	} {
		if Validate(&o) == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if err := Validate(&v1.PodLogOptions{SinceSeconds: ptr(int64(1)), TailLines: ptr(int64(0)), LimitBytes: ptr(int64(1))}); err != nil {
		t.Error(err)
	}
}

// silent is a Notifier that never tells anything.
type silent struct{}

func (silent) Notify(ctx context.Context, _ string, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestFollowingGoesOnAcrossRotationAndEndsWithTheContainer(t *testing.T) {
	for name, silence := range map[string]bool{"with notifications": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			r, path := logFile(t, "2026-11-20T10:00:00Z stdout F one\n")
			run := func(t *testing.T) {
				if silence {
					r.notifier = silent{}
				}
				ended := make(chan struct{})
				var out buffer
				result := make(chan error, 1)
				go func() {
					result <- r.Read(t.Context(), Request{Path: path, Options: &v1.PodLogOptions{Follow: true}, Ended: ended}, &out)
				}()
				wait := func(want string) {
					t.Helper()
					for out.String() != want {
						select {
						case err := <-result:
							t.Fatalf("ended with %v at %q, want %q", err, out.String(), want)
						case <-time.After(20 * time.Millisecond):
						}
					}
				}
				wait("one\n")
				appendTo(t, path, "2026-11-20T10:00:00Z stdout F two\n")
				wait("one\ntwo\n")
				appendTo(t, path, "2026-11-20T10:00:00Z stdout F three\n")
				if err := os.Rename(path, path+".20261120-100000"); err != nil {
					t.Fatal(err)
				}
				appendTo(t, path, "2026-11-20T10:00:00Z stdout F four\n")
				wait("one\ntwo\nthree\nfour\n")
				appendTo(t, path, "2026-11-20T10:00:00Z stdout F five\n")
				close(ended)
				if err := <-result; err != nil || out.String() != "one\ntwo\nthree\nfour\nfive\n" {
					t.Fatalf("error %v, output %q", err, out.String())
				}
			}
			if silence {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzADecodedLogDoesNotDependOnHowItIsCut(f *testing.F) {
	f.Add([]byte(sample), 7, true)
	f.Add([]byte("{\"log\":\"x\"}\n"), 1, false)
	f.Add([]byte("\n \n  \n   P\n"), 2, true)
	f.Fuzz(func(t *testing.T, text []byte, cut int, timestamps bool) {
		if cut < 1 {
			cut = 1
		}
		o := &v1.PodLogOptions{Timestamps: timestamps}
		var whole, pieces bytes.Buffer
		if err := newDecoder(&whole, o, time.Time{}).copy(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		d := newDecoder(&pieces, o, time.Time{})
		for at := 0; at < len(text); at += cut {
			if err := d.copy(t.Context(), bytes.NewReader(text[at:min(at+cut, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(whole.Bytes(), pieces.Bytes()) {
			t.Fatalf("whole %q, in pieces of %d %q", whole.Bytes(), cut, pieces.Bytes())
		}
	})
}

func BenchmarkRead(b *testing.B) {
	line := "2026-11-20T10:00:00.123456789Z stdout F " + strings.Repeat("a log line of usual length ", 4) + "\n"
	r, path := logFile(b, strings.Repeat(line, 200000))
	for _, bc := range []struct {
		name string
		opts v1.PodLogOptions
	}{{"plain", v1.PodLogOptions{}}, {"timestamps", v1.PodLogOptions{Timestamps: true}}, {"tail", v1.PodLogOptions{TailLines: ptr(int64(100))}}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			if bc.opts.TailLines == nil {
				b.SetBytes(int64(len(line)) * 200000)
			}
			for b.Loop() {
				n := counter(0)
				if err := r.Read(b.Context(), Request{Path: path, Options: &bc.opts}, &n); err != nil || n == 0 {
					b.Fatal(err, n)
				}
			}
		})
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
