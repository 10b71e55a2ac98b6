package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/polylet/polylet/test/harness/workspace"
)

// buildTags are the Makefile's TAGS.
const buildTags = "grpcnotrace"

// Polylet builds cmd/polylet of this checkout into bin/polylet and returns its
// path; POLYLET_BINARY names another one. Go's own cache makes a second build
// cheap.
func (b *Builder) Polylet(ctx context.Context) (string, error) {
	if given := os.Getenv("POLYLET_BINARY"); given != "" {
		return given, nil
	}
	return b.own(ctx, "polylet", filepath.Join("cmd", "polylet"))
}

// FakeRuntime builds test/cmd/fakeruntime of this checkout into bin/fakeruntime
// and returns its path.
func (b *Builder) FakeRuntime(ctx context.Context) (string, error) {
	return b.own(ctx, "fakeruntime", filepath.Join("test", "cmd", "fakeruntime"))
}

// CSIDriver builds test/cmd/csidriver of this checkout into bin/csidriver and returns its
// path.
func (b *Builder) CSIDriver(ctx context.Context) (string, error) {
	return b.own(ctx, "csidriver", filepath.Join("test", "cmd", "csidriver"))
}

// CSIHostPath builds test/images/csihostpath of this checkout and the program that registers
// it with an agent, and returns their paths.
func (b *Builder) CSIHostPath(ctx context.Context) (driver, registrar string, err error) {
	images := filepath.Join("test", "images")
	if driver, err = b.own(ctx, "csihostpath", filepath.Join(images, "csihostpath")); err != nil {
		return "", "", err
	}
	// The stand-in is what it is called.
	registrar, err = b.own(ctx, "csi-node-driver-registrar", filepath.Join(images, "csistandin"))
	return driver, registrar, err
}

// Systemctl builds test/cmd/systemctl of this checkout into bin/systemctl, the
// stand-in of systemd's, and returns its path.
func (b *Builder) Systemctl(ctx context.Context) (string, error) {
	return b.own(ctx, "systemctl", filepath.Join("test", "cmd", "systemctl"))
}

// Own builds every program of this checkout that a test may want, into bin/, for
// workspace.BuiltVariable.
func (b *Builder) Own(ctx context.Context) error {
	for _, build := range []func(context.Context) (string, error){b.Polylet, b.FakeRuntime, b.CSIDriver, b.Systemctl} {
		if _, err := build(ctx); err != nil {
			return err
		}
	}
	return nil
}

// own builds a program of this checkout.
func (b *Builder) own(ctx context.Context, name, dir string) (string, error) {
	if built := workspace.Built(name); built != "" {
		return built, nil
	}
	path := filepath.Join(b.root, "bin", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	fmt.Fprintf(b.progress, "building %s …\n", name)
	dropUnfinished(path)
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", buildTags, "-o", fresh, ".")
	cmd.Dir = filepath.Join(b.root, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s in %s: %w\n%s", name, cmd.Dir, err, out)
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("put %s in place: %w", name, err)
	}
	return path, nil
}

// dropUnfinished removes what builds have left whose process was killed.
func dropUnfinished(path string) {
	left, _ := filepath.Glob(path + ".*")
	for _, file := range left {
		pid := strings.TrimPrefix(file, path+".")
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(file) // it takes room, nothing else
		}
	}
}
