package programs

import (
	"context"
	"os"
	"os/exec"
	"strings"
)

// Checkout names the commit that Polylet builds, or what was given instead.
func Checkout(ctx context.Context, root string) string {
	if os.Getenv("POLYLET_BINARY") != "" {
		if from := os.Getenv("POLYLET_BINARY_COMMIT"); from != "" {
			return "commit " + from
		}
		return "given as POLYLET_BINARY"
	}
	commit := "commit " + git(ctx, root, "rev-parse", "--short=12", "HEAD")
	if git(ctx, root, "status", "--porcelain", "--", "api", "internal", "services", "cmd") != "" {
		commit += " with local changes"
	}
	return commit
}

func git(ctx context.Context, dir string, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
