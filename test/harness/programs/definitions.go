package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// SnapshotDefinitions returns the directory with the definitions of snapshots that the
// pinned snapshot controller is made for; it has a kustomization.yaml.
func (b *Builder) SnapshotDefinitions(ctx context.Context) (string, error) {
	const module = csiModules + "external-snapshotter/client/v8"
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = filepath.Join(b.root, csiDir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		// The controller is built from it, so it was fetched.
		return "", fmt.Errorf("find module %s, of which the snapshot controller is built: it is at %q: %w", module, dir, err)
	}
	return filepath.Join(dir, "config", "crd"), nil
}
