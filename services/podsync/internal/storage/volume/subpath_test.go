package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestASubPathIsExactlyWhatWasFound(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(volume, "inside")); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"file", "inside", "./file"} {
		path, err := f.set.SubPath(t.Context(), pod, "c", i, "e", name)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "one" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	dir, err := f.set.SubPath(t.Context(), pod, "c", 3, "e", "new/dir")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(volume, "new/dir")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the missing directory: %v, %v; want the volume's mode", info, err)
	}
	before := len(mountsBelow(t, f.root))
	again, err := f.set.SubPath(t.Context(), pod, "c", 3, "e", "new/dir")
	if err != nil || again != dir || len(mountsBelow(t, f.root)) != before {
		t.Errorf("a restarted container mounts anew: %v", err)
	}
	// Another file under the same name is what the next container gets.
	if err := os.WriteFile(filepath.Join(volume, "other"), []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, "other"), filepath.Join(volume, "file")); err != nil {
		t.Fatal(err)
	}
	path, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "file")
	if data, _ := os.ReadFile(path); err != nil || string(data) != "two" {
		t.Errorf("after the swap: %q, %v", data, err)
	}
}

func TestWhatIsMadeForASubPathIsAsStickyAsTheVolume(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	const mode = os.ModePerm | os.ModeSetgid | os.ModeSticky
	if err := os.Chmod(volume, mode); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "new/dir"); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{"new", "new/dir"} {
		if info, err := os.Stat(filepath.Join(volume, made)); err != nil || info.Mode() != os.ModeDir|mode {
			t.Errorf("%s: %v, %v; want the volume's mode", made, info.Mode(), err)
		}
	}
}

// callsHere has done here what is done by processes of their own.
type callsHere struct{}

func (callsHere) Do(_ context.Context, _, call string, args ...string) (string, error) {
	return Calls()[call](args)
}

func (c callsHere) Follow(ctx context.Context, whose string, _ func(string), call string, args ...string) (string, error) {
	return c.Do(ctx, whose, call, args...)
}

// waysToASubPath are with whom a subPath is looked up: podsync has others for it.
func waysToASubPath() map[string]Apart {
	return map[string]Apart{"with others": callsHere{}, "alone": nil}
}

func TestASubPathCannotLeaveTheVolume(t *testing.T) {
	for name, others := range waysToASubPath() {
		t.Run(name, func(t *testing.T) {
			f := onKernel(t)
			f.set.deps.Apart = others
			pod := podWith(emptyDirVolume("e"))
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			volume, _ := f.set.HostPath("uid-1", "e")
			for _, harm := range leadOutOf(t, volume, func(path string) (string, error) { return f.set.SubPath(t.Context(), pod, "c", 0, "e", path) }) {
				t.Error(harm)
			}
			if n := len(mountsBelow(t, f.root)); n != 0 {
				t.Errorf("%d mounts were made", n)
			}
		})
	}
}

// leadOutOf plants links in a volume, looks for paths that lead out of it (CVE-2017-1002101),
// and says which gave something or were made outside.
func leadOutOf(t *testing.T, volume string, subPath func(path string) (string, error)) (harm []string) {
	t.Helper()
	outside := t.TempDir()
	for name, target := range map[string]string{"abs": outside, "up": "../../../../..", "proc": "/proc/self/root", "dangling": outside + "/none"} {
		if err := os.Symlink(target, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"abs", "up", "abs/x", "up/etc", "proc", "proc/etc/passwd", "dangling", "dangling/x", "../e", "a/../../x", "/etc"} {
		if got, err := subPath(path); err == nil {
			harm = append(harm, fmt.Sprintf("subPath %s gave %s", path, got))
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		harm = append(harm, fmt.Sprintf("made outside the volume: %v", entries))
	}
	return harm
}

// TestASubPathThatIsLookedForByItsNameIsCaught, though it has no "..": links lead it out.
func TestASubPathThatIsLookedForByItsNameIsCaught(t *testing.T) {
	volume := t.TempDir()
	harm := leadOutOf(t, volume, func(path string) (string, error) {
		if !filepath.IsLocal(path) {
			return "", os.ErrPermission
		}
		at := filepath.Join(volume, path)
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
		return at, os.MkdirAll(at, 0o750)
	})
	if !slices.ContainsFunc(harm, func(h string) bool { return strings.HasPrefix(h, "subPath abs gave") }) ||
		!slices.ContainsFunc(harm, func(h string) bool { return strings.HasPrefix(h, "made outside") }) {
		t.Errorf("seen was %q", harm)
	}
}

// An administrator's link to the release that is in use has its whole path.
func TestALinkOfTheHostThatStaysInTheHostPathIsFollowed(t *testing.T) {
	f := onKernel(t)
	app, outside := filepath.Join(t.TempDir(), "app"), t.TempDir()
	if err := os.MkdirAll(filepath.Join(app, "releases/7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(app, "releases/7/version"), []byte("7"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		app + "/current": app + "/releases/7", app + "/chain": app + "/current", app + "/up": app + "/releases/../releases/7",
		app + "/out": outside, app + "/back": outside + "/../" + filepath.Base(outside), app + "/dangling": app + "/none", app + "/loop": app + "/loop",
		outside + "/in": app,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	pod := podWith(v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: outside + "/in"}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"current", "chain", "up", "current/new/dir"} {
		path, err := f.set.SubPath(t.Context(), pod, "c", i, "h", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if data, err := os.ReadFile(filepath.Join(path, "version")); string(data) != "7" && name != "current/new/dir" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(app, "releases/7/new/dir")); err != nil || !info.IsDir() {
		t.Errorf("the missing directory: %v", err)
	}
	for _, name := range []string{"out", "back", "out/x", "dangling", "loop"} {
		if got, err := f.set.SubPath(t.Context(), pod, "c", 9, "h", name); err == nil {
			t.Errorf("subPath %s gave %s", name, got)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("made outside the volume: %v", entries)
	}
}
