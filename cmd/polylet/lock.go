package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/lockfile"
)

// lockTimeout is the time that systemd is asked for at once.
const lockTimeout = 90 * time.Second

// holdLock takes the lock that keeps a second agent off this node. While another
// agent has it systemd is told that the start goes on: a start that is given up
// would let start what comes after podsync, nodestatus for one, which would write
// the other agent's Node.
func holdLock(ctx context.Context, loaded *kubeletconfig.Loaded, log klog.Logger) (held context.Context, release func(), err error) {
	waiting, over := context.WithCancel(ctx)
	defer over()
	return lockfile.Hold(ctx, lockfile.Config{
		Path: loaded.Flags.LockFile, ExitOnContention: loaded.Flags.ExitOnLockContention,
		Waiting: func() { go askForTime(waiting, loaded.Flags.LockFile, log) },
	}, log)
}

// askForTime keeps systemd from giving the start up, until ctx is done.
func askForTime(ctx context.Context, path string, log klog.Logger) {
	state := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=Waiting for another agent to give up the lock file %s", lockTimeout.Microseconds(), path)
	ticker := time.NewTicker(lockTimeout / 3)
	defer ticker.Stop()
	for {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Error(err, "Could not tell systemd that the lock file is waited for")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
