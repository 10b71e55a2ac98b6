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
		got, devices := Overlays(strings.NewReader(c.mounts), []string{"/s"})
		if c.want == nil {
			c.want = map[string]string{}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (devices["0:50"] == "abc") != (len(c.want) > 0) {
			t.Errorf("%s: %v", name, devices)
		}
	}
	if got, _ := Overlays(strings.NewReader(strings.Repeat("x", 2<<20)), nil); got != nil {
		t.Errorf("of a line without an end: %v", got)
	}
}

// layers are overlays of containers, as a runtime mounts them; each has one file. They are
// weighed until the test ends.
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
	l := NewLayers(file, config())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l, RuntimeUsage{Images: []Usage{{Mountpoint: dir}}}
}

func TestALayerIsWeighedWhereItLiesAndOthersAreAsTheRuntimeSaid(t *testing.T) {
	l, account := layers(t, "a", "b")
	began := time.Now()
	old := Usage{Time: began.Add(-10 * time.Second), Bytes: 5, Inodes: 1}
	account.Layers = map[string]Usage{"a": old, "elsewhere": old, "not asked for": old}
	var all []Layer
	for _, id := range []string{"a", "b", "elsewhere", "unknown"} {
		all = append(all, Layer{Container: id, Namespace: "ns"})
	}
	weigh := func() (map[string]Usage, map[string]bool) {
		return l.Weigh(t.Context(), account, all, began, true).Beside(account.Layers, all, began)
	}
	got, late := weigh()
	for _, id := range []string{"a", "b"} {
		if u := got[id]; u.Bytes < 1<<20 || u.Inodes != 2 || u.Time.Before(began) {
			t.Errorf("%s: %+v", id, u)
		}
	}
	if diff := cmp.Diff(map[string]bool{"elsewhere": true, "unknown": true}, late); diff != "" {
		t.Error(diff)
	}
	if got["elsewhere"] != old || got["not asked for"] != old || len(got) != 4 || account.Layers["a"] != old || len(account.Layers) != 3 {
		t.Errorf("%+v; the account %+v", got, account.Layers)
	}
	if again, _ := weigh(); again["a"] != got["a"] {
		t.Errorf("what was weighed since then is weighed again: %+v, %+v", got["a"], again["a"])
	}
	l.mounts = "/nowhere"
	if got, late := weigh(); len(late) != 4 || got["a"] != old {
		t.Errorf("without mounts: %+v, %v", got, late)
	}
}

func TestALayerThatWasWeighedInPartIsNotOneThatWasWeighed(t *testing.T) {
	since := time.Unix(150, 0)
	before, now := time.Unix(100, 0), time.Unix(200, 0)
	said := Usage{Time: before, Bytes: 50, Inodes: 5}
	for name, c := range map[string]struct {
		found Weights
		said  map[string]Usage
		want  Usage
		late  bool
	}{
		"all of it, which is less":    {Weights{"c": {Usage{Time: now, Bytes: 1, Inodes: 1}, false}}, map[string]Usage{"c": said}, Usage{Time: now, Bytes: 1, Inodes: 1}, false},
		"a part, which is less":       {Weights{"c": {Usage{Time: now, Bytes: 1, Inodes: 1}, true}}, map[string]Usage{"c": said}, said, true},
		"a part, which is more":       {Weights{"c": {Usage{Time: now, Bytes: 60, Inodes: 6}, true}}, map[string]Usage{"c": said}, Usage{Time: before, Bytes: 60, Inodes: 6}, true},
		"a part, of small files":      {Weights{"c": {Usage{Time: now, Bytes: 40, Inodes: 6}, true}}, map[string]Usage{"c": said}, Usage{Time: before, Bytes: 50, Inodes: 6}, true},
		"a part, the runtime's new":   {Weights{"c": {Usage{Time: now, Bytes: 1, Inodes: 1}, true}}, map[string]Usage{"c": {Time: now, Bytes: 9}}, Usage{Time: now, Bytes: 9, Inodes: 1}, false},
		"a part, and nothing is said": {Weights{"c": {Usage{Time: now, Bytes: 3, Inodes: 1}, true}}, nil, Usage{Bytes: 3, Inodes: 1}, true},
		"the runtime's is newer":      {Weights{"c": {Usage{Time: since, Bytes: 60, Inodes: 6}, false}}, map[string]Usage{"c": {Time: now, Bytes: 9}}, Usage{Time: now, Bytes: 9}, false},
		"all, and nothing is said":    {Weights{"c": {Usage{Time: now}, false}}, nil, Usage{Time: now}, false},
		"all, but before":             {Weights{"c": {Usage{Time: before}, false}}, nil, Usage{Time: before}, true},
		"nothing, the runtime's old":  {nil, map[string]Usage{"c": said}, said, true},
		"nothing, the runtime's new":  {nil, map[string]Usage{"c": {Time: now, Bytes: 9}}, Usage{Time: now, Bytes: 9}, false},
		"nothing at all":              {nil, nil, Usage{}, true},
	} {
		got, late := c.found.Beside(c.said, []Layer{{Container: "c"}}, since)
		if _, known := got["c"]; got["c"] != c.want || late["c"] != c.late || known != (c.found != nil || c.said != nil) {
			t.Errorf("%s: %+v, %v", name, got, late)
		}
	}
}

func FuzzOverlays(f *testing.F) {
	f.Add("90 30 0:50 / /run/c/abc/rootfs rw - overlay overlay rw,upperdir=/s/9/fs")
	f.Add("90 30 0:50 / /rootfs rw - overlay overlay rw,upperdir=/s/../fs")
	f.Fuzz(func(t *testing.T, mounts string) {
		uppers, _ := Overlays(strings.NewReader(mounts), []string{"/s"})
		for id, path := range uppers {
			if path != "" && !strings.HasPrefix(path, "/s/") || strings.Contains(path, "/../") {
				t.Errorf("%q lies at %q", id, path)
			}
		}
	})
}

// Else what a container has removed counted for as long as its layer takes too long.
func TestWhatTheRuntimeSaidSinceALayerWasCountedInPartIsBelieved(t *testing.T) {
	counted := time.Now()
	w := weight{Usage{Time: counted, Bytes: 9, Inodes: 9}, true}
	for after, want := range map[time.Duration]uint64{-time.Second: 9, time.Second: 5} {
		if got := w.beside(Usage{Time: counted.Add(after), Bytes: 5, Inodes: 5}); got.Bytes != want || got.Inodes != want {
			t.Errorf("said %v later: %+v", after, got)
		}
	}
}
