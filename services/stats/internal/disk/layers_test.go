package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhereALayerLiesIsKnownByTheRuntimesMountOnly(t *testing.T) {
	const line = "90 30 0:50 %s %s rw,relatime shared:5 - %s overlay rw,lowerdir=/l/1:/l/2,%sworkdir=/s/9/work\n"
	mount := func(root, at, kind, options string) string { return fmt.Sprintf(line, root, at, kind, options) }
	for name, c := range map[string]struct {
		mounts string
		want   map[string]string
	}{
		"as containerd mounts it": {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/9/fs,"), map[string]string{"abc": "/s/9/fs"}},
		"twice the same":          {strings.Repeat(mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/9/fs,"), 2), map[string]string{"abc": "/s/9/fs"}},
		"two for one container": {
			mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/9/fs,") + mount("/", "/other/abc/rootfs", "overlay", "upperdir=/s/8/fs,"),
			map[string]string{"abc": ""},
		},
		"elsewhere than layers lie":  {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/srv/fs,"), nil},
		"out of where layers lie":    {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/../etc,"), nil},
		"a name that begins so":      {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s2/fs,"), nil},
		"one that is only read":      {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", ""), nil},
		"a part of one":              {mount("/etc", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/9/fs,"), nil},
		"another's mount":            {mount("/", "/var/lib/docker/merged", "overlay", "upperdir=/s/9/fs,"), nil},
		"no overlay":                 {mount("/", "/run/c/k8s.io/abc/rootfs", "fuse.overlay", "upperdir=/s/9/fs,"), nil},
		"a name that has a space":    {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", `upperdir=/s/9\0409/fs,`), nil},
		"two directories":            {mount("/", "/run/c/k8s.io/abc/rootfs", "overlay", "upperdir=/s/9/fs,upperdir=/s/8/fs,"), nil},
		"what cannot be read at all": {"x\n - \n\n", nil},
	} {
		got := Uppers(strings.NewReader(c.mounts), []string{"/s"})
		if c.want == nil {
			c.want = map[string]string{}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := Uppers(strings.NewReader(strings.Repeat("x", 2<<20)), nil); got != nil {
		t.Errorf("of a line without an end: %v", got)
	}
}

// layers are overlays of containers, as a runtime mounts them; each has one file.
func layers(t *testing.T, ids ...string) (*Layers, RuntimeUsage) {
	t.Helper()
	dir := t.TempDir()
	var mounts strings.Builder
	for _, id := range ids {
		fs := filepath.Join(dir, id, "fs")
		if err := os.MkdirAll(fs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(fs, "file"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&mounts, "90 30 0:50 / /run/c/%s/rootfs rw - overlay overlay rw,upperdir=%s\n", id, fs)
	}
	file := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(file, []byte(mounts.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Layers{Mounts: file}, RuntimeUsage{Images: []Usage{{Mountpoint: dir}}}
}

func TestALayerIsWeighedWhereItLiesAndOthersAreAsTheRuntimeSaid(t *testing.T) {
	l, account := layers(t, "a", "b")
	old := Usage{Time: time.Now().Add(-10 * time.Second), Bytes: 5, Inodes: 1}
	account.Layers = map[string]Usage{"a": old, "elsewhere": old}
	began := time.Now()
	got := l.Weigh(t.Context(), account, []string{"a", "b", "elsewhere"}).Beside(account.Layers)
	for _, id := range []string{"a", "b"} {
		if u := got[id]; u.Bytes < 1<<20 || u.Inodes != 2 || u.Time.Before(began) {
			t.Errorf("%s: %+v", id, u)
		}
	}
	if got["elsewhere"] != old || len(got) != 3 || account.Layers["a"] != old || len(account.Layers) != 2 {
		t.Errorf("%+v; the account %+v", got, account.Layers)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if w, ok := weigh(ended, t.TempDir()); ok {
		t.Errorf("without time: %+v", w)
	}
	if got := (&Layers{}).Weigh(t.Context(), account, []string{"a"}); len(got) != 0 {
		t.Errorf("without mounts: %+v", got)
	}
}

func TestWhileALayerIsWeighedNoOtherIs(t *testing.T) {
	l, account := layers(t, "a")
	l.underWay = true
	if got := l.Weigh(t.Context(), account, []string{"a"}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	l.underWay = false
	for range 2 {
		if got := l.Weigh(t.Context(), account, []string{"a"}); len(got) != 1 {
			t.Errorf("then %+v", got)
		}
	}
}

func TestALayerThatWasCountedInPartHidesNothingAndIsNotCalledLess(t *testing.T) {
	before, now := time.Unix(100, 0), time.Unix(200, 0)
	said := Usage{Time: before, Bytes: 50, Inodes: 5}
	for name, c := range map[string]struct {
		found weight
		want  Usage
		ok    bool
	}{
		"all of it, which is less":    {weight{Usage: Usage{Time: now, Bytes: 1, Inodes: 1}}, Usage{Time: now, Bytes: 1, Inodes: 1}, true},
		"a part, which is less":       {weight{Usage: Usage{Time: now, Bytes: 1, Inodes: 1}, partly: true}, said, false},
		"a part, which is more":       {weight{Usage: Usage{Time: now, Bytes: 60, Inodes: 6}, partly: true}, Usage{Time: now, Bytes: 60, Inodes: 6}, true},
		"a part, of small files":      {weight{Usage: Usage{Time: now, Bytes: 40, Inodes: 6}, partly: true}, Usage{Time: now, Bytes: 50, Inodes: 6}, true},
		"the runtime's is newer":      {weight{Usage: Usage{Time: time.Unix(50, 0), Bytes: 60, Inodes: 6}}, said, false},
		"all of it, and of it nobody": {weight{Usage: Usage{Time: now}}, Usage{Time: now}, true},
	} {
		if got, ok := c.found.beside(said); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func FuzzUppers(f *testing.F) {
	f.Add("90 30 0:50 / /run/c/abc/rootfs rw - overlay overlay rw,upperdir=/s/9/fs")
	f.Add("90 30 0:50 / /rootfs rw - overlay overlay rw,upperdir=/s/../fs")
	f.Fuzz(func(t *testing.T, mounts string) {
		for id, path := range Uppers(strings.NewReader(mounts), []string{"/s"}) {
			if path != "" && !strings.HasPrefix(path, "/s/") || strings.Contains(path, "/../") {
				t.Errorf("%q lies at %q", id, path)
			}
		}
	})
}
