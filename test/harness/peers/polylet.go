package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	path := filepath.Join(b.root, "bin", "polylet")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("build polylet: %w", err)
	}
	fmt.Fprintln(b.progress, "building polylet …")
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", buildTags, "-o", fresh, ".")
	cmd.Dir = filepath.Join(b.root, "cmd", "polylet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build polylet in %s: %w\n%s", cmd.Dir, err, out)
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("put polylet in place: %w", err)
	}
	return path, nil
}
