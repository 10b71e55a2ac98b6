package cluster

import (
	"context"
	"fmt"
	"os"
)

// Backup keeps what etcd has now, for which etcd and the apiserver are away for a moment.
// restore brings it back, as an operator does from a snapshot: versions of objects go on
// from then.
func (c *Cluster) Backup(ctx context.Context) (restore func(context.Context) error, err error) {
	data, kept := c.path("etcd"), c.path("etcd-backup")
	restore = func(ctx context.Context) error {
		return c.whileAway(ctx, func() error {
			if err := os.RemoveAll(data); err != nil {
				return fmt.Errorf("remove etcd's data: %w", err)
			}
			return copyDir(kept, data)
		})
	}
	return restore, c.whileAway(ctx, func() error { return copyDir(data, kept) })
}

// whileAway does something while neither etcd nor the apiserver runs.
func (c *Cluster) whileAway(ctx context.Context, do func() error) error {
	c.APIServer.Stop()
	c.Etcd.Stop()
	if err := do(); err != nil {
		return err
	}
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}

func copyDir(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy etcd's data: %w", err)
	}
	// etcd wants it for itself.
	if err := os.Chmod(to, 0o700); err != nil {
		return fmt.Errorf("copy etcd's data: %w", err)
	}
	return nil
}
