package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
)

// Check is a check of the process's own health, beside what it depends on.
type Check struct {
	// Name as in /healthz/<name>: log, syncloop, device-plugin.
	Name string
	// Run says what is wrong; nil when nothing is. It returns when ctx is done.
	Run func(ctx context.Context) error
}

// checkDeadline bounds one check.
const checkDeadline = 2 * time.Second

// AddCheck adds a check behind "log". Call it before Run.
func (d *Daemon) AddCheck(c Check) { d.checks = append(d.checks, c) }

// CheckHealth implements CommonService.
func (c *common) CheckHealth(ctx context.Context, req *commonv1.CheckHealthRequest) (*commonv1.CheckHealthResponse, error) {
	resp := &commonv1.CheckHealthResponse{}
	for _, check := range c.daemon.checks {
		if names := req.GetNames(); len(names) > 0 && !slices.Contains(names, check.Name) {
			continue
		}
		result := &commonv1.HealthCheck{Name: check.Name, Healthy: true}
		if err := runCheck(ctx, check); err != nil {
			result.Healthy, result.Message = false, err.Error()
		}
		resp.Checks = append(resp.Checks, result)
	}
	return resp, nil
}

func runCheck(ctx context.Context, check Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	return check.Run(ctx)
}

// flusher flushes the log, one flush at a time.
type flusher struct {
	flush func()

	mu   sync.Mutex
	done chan struct{}
}

func newFlusher() *flusher { return &flusher{flush: klog.Flush} }

// logsAreWritten flushes the log: with a disk or a pipe that takes nothing any
// more, every goroutine that logs would hang behind it.
// One flush serves all who ask while it hangs, and needs one goroutine.
func (f *flusher) logsAreWritten(ctx context.Context) error {
	f.mu.Lock()
	done := f.done
	if done == nil {
		done = make(chan struct{})
		f.done = done
		go func() {
			f.flush()
			f.mu.Lock()
			f.done = nil
			f.mu.Unlock()
			close(done)
		}()
	}
	f.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the log could not be flushed within %s: %w", checkDeadline, errors.Join(ctx.Err(), errLogBlocked))
	}
}

var errLogBlocked = errors.New("whoever takes standard error does not read it")
