package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/workspace"
)

// niceness of a build: it must not starve what runs beside it.
const niceness = 10

// Builder finds or builds peers. Its zero value is not usable; see New.
type Builder struct {
	root, cache string
	progress    io.Writer
}

// New returns a builder for the checkout around the working directory. Lines
// about what is being built go to progress.
func New(progress io.Writer) (*Builder, error) {
	root, err := workspace.Root()
	if err != nil {
		return nil, err
	}
	return &Builder{root: root, cache: filepath.Join(workspace.Cache(), "bin"), progress: progress}, nil
}

// Binary returns the path of the peer's binary, building it when the cache has
// none for exactly these pins and flags. Two builders wait for each other.
func (b *Builder) Binary(ctx context.Context, p Peer) (string, error) {
	key, err := b.key(p)
	if err != nil {
		return "", fmt.Errorf("build %s %s: %w", p.Name, p.Version, err)
	}
	path := filepath.Join(b.cache, p.Name+"-"+p.Version+"-"+key, p.Name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := b.build(ctx, p, path); err != nil {
		return "", fmt.Errorf("build %s %s from %s: %w", p.Name, p.Version, filepath.Join(b.root, p.dir), err)
	}
	return path, nil
}

// Binaries is Binary for several peers, one after the other, by name.
func (b *Builder) Binaries(ctx context.Context, peers ...Peer) (map[string]string, error) {
	paths := make(map[string]string, len(peers))
	for _, p := range peers {
		path, err := b.Binary(ctx, p)
		if err != nil {
			return nil, err
		}
		paths[p.Name] = path
	}
	return paths, nil
}

// key identifies everything that a binary depends on.
func (b *Builder) key(p Peer) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(b.root, p.dir, name))
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	sources, err := filepath.Glob(filepath.Join(b.root, p.dir, "*.go")) // of a main package of our own
	if err != nil {
		return "", err
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	fmt.Fprintln(sum, p.pkg, strings.Join(p.arguments(), "\x00"))
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// command is what go is asked to do.
func (p Peer) command() []string {
	if p.test {
		return []string{"test", "-c", "-vet=off"}
	}
	return []string{"build"}
}

func (p Peer) cgoEnabled() string {
	if p.cgo {
		return "1"
	}
	return "0"
}

func (p Peer) arguments() []string {
	return append([]string{"-trimpath", "-buildvcs=false", "-mod=readonly"}, p.flags...)
}

func (b *Builder) build(ctx context.Context, p Peer, path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, filepath.Join(b.cache, "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return nil // another builder was first
	}
	began := time.Now()
	fmt.Fprintf(b.progress, "building %s %s (about %s, cached afterwards) …\n", p.Name, p.Version, p.about)
	fresh := filepath.Join(dir, ".building")
	args := append(p.command(), p.arguments()...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", fresh, p.pkg)...)
	cmd.Dir = filepath.Join(b.root, p.dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED="+p.cgoEnabled(), "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go build: %w", err)
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, niceness); err != nil {
		fmt.Fprintf(b.progress, "the build keeps its normal priority: %v\n", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", p.pkg, err, out.String())
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "built %s %s in %s\n", p.Name, p.Version, time.Since(began).Round(time.Second))
	return nil
}

// lock waits for the one build at a time that two cores can bear.
func (b *Builder) lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			fmt.Fprintf(b.progress, "waiting for another build that holds %s …\n", path)
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another build (%s): %w", path, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}
