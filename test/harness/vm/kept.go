package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// keptSize is that of the disk of what is kept, of which only what is written takes room.
const keptSize = "4G"

func (c Config) keptImage() string { return filepath.Join(c.Work, "kept.ext4") }

// makeKept makes the empty disk of what is kept, if anything is.
func (c Config) makeKept(ctx context.Context) error {
	if c.Kept == "" {
		return nil
	}
	empty := filepath.Join(c.Work, "kept")
	return errors.Join(os.MkdirAll(empty, 0o755), makeDisk(ctx, empty, c.keptImage(), keptSize))
}

// takeKept copies what is on that disk, also of a machine that was killed, and of a run
// whose context has ended: nobody waits for more than this.
func (c Config) takeKept() error {
	if c.Kept == "" {
		return nil
	}
	defer os.Remove(c.keptImage())
	ctx := context.Background()
	_ = command(ctx, "e2fsck", "-fp", c.keptImage()) // says with its code that it has mended something
	if err := os.MkdirAll(c.Kept, 0o755); err != nil {
		return err
	}
	if err := command(ctx, "debugfs", "-R", fmt.Sprintf("rdump / %q", c.Kept), c.keptImage()); err != nil {
		return fmt.Errorf("take out what the virtual machine has left: %w", err)
	}
	return nil
}
