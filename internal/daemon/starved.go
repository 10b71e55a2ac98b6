package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/polylet/polylet/internal/schedstat"
)

// longestStarved is how long a process passes for one that has no processor: one that goes
// round in a ring waits for processors too, where others want them.
const longestStarved = 10 * time.Minute

// answers is whether the process is alive: it answers a call on its own socket, or would
// if it had a processor. A machine with ten times as much to do as it can does not get
// better by processes that are ended and started anew, all of them, every minute; one
// that hangs waits for something else. A socket that is gone has nothing to do with that. waited is
// how long threads have waited so far.
func (d *Daemon) answers(ctx context.Context, address string, timeout time.Duration, waited func() time.Duration) error {
	began, before := time.Now(), waited()
	err := checkSelf(ctx, address, timeout)
	if err == nil {
		d.silent = time.Time{}
		return nil
	}
	if d.silent.IsZero() {
		d.silent = began
	}
	if _, lost := os.Lstat(address); time.Since(d.silent) > longestStarved || errors.Is(lost, fs.ErrNotExist) {
		return err
	}
	if took, starved := time.Since(began), waited()-before; starved >= took/2 {
		d.log.Info("Watchdog: the process does not answer on its own socket, for others have the processors; it is not taken for one that hangs",
			"socket", address, "took", took.String(), "waited", starved.String(), "err", err)
		return nil
	}
	return err
}

// waitedForProcessors is how long the threads that this process has now were ready to run
// and had no processor, together; zero where the kernel does not tell.
func waitedForProcessors() time.Duration { return schedstat.Self().Waited }
