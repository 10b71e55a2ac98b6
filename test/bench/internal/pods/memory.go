package pods

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/test/bench/internal/profile"
	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
	"github.com/polylet/polylet/test/harness/node"
)

// settled is after how long an agent has given back what its start needed.
const settled = 45 * time.Second

// measureMemory takes only what the agent's processes hold, each by itself and
// together: soon after the start and when they have settled, without pods and
// with a burst of them. Unlike the times, these figures do not change with what
// else the machine does.
func measureMemory(ctx context.Context, s Settings, st *stage.Stage, c *report.Column) error {
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	o, err := stage.Observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.Watch.Stop()
	if err := takeTwice(ctx, s, st, c, "no pods"); err != nil {
		return err
	}
	before, err := usage.CPUOfEach(st.Node)
	if err != nil {
		return err
	}
	if err := life(ctx, st, o, stage.BurstNames(s.Burst), c, fmt.Sprintf("%d pods", s.Burst), func() error {
		return takeTwice(ctx, s, st, c, fmt.Sprintf("%d pods", s.Burst))
	}); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(30))
	}
	after, err := usage.CPUOfEach(st.Node)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		c.Add(fmt.Sprintf("CPU of %s per pod, idle minute included, ms", name), (after[name]-before[name])/float64(s.Burst))
	}
	return err
}

func takeTwice(ctx context.Context, s Settings, st *stage.Stage, c *report.Column, when string) error {
	for _, at := range []struct {
		name  string
		after time.Duration
	}{{when + ", at first", stage.Settle}, {when + ", settled", settled - stage.Settle}} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(at.after):
		}
		if err := addMemory(st, c, at.name); err != nil {
			return err
		}
	}
	return profile.Heaps(ctx, s.Profiles, st.Node, strings.ReplaceAll(when, " ", "-"))
}

// addMemory adds rows for all processes together and, if there are several, for
// each.
func addMemory(st *stage.Stage, c *report.Column, when string) error {
	var total usage.Pages
	for _, name := range slices.Sorted(maps.Keys(st.Node.Processes)) {
		m, err := usage.PagesOf(st.Node.Processes[name].Pid())
		if err != nil {
			return fmt.Errorf("read the memory of %s: %w", name, err)
		}
		total.PSS, total.Anon, total.File = total.PSS+m.PSS, total.Anon+m.Anon, total.File+m.File
		if len(st.Node.Processes) > 1 {
			c.Add(fmt.Sprintf("PSS of %s, %s, MiB", name, when), m.PSS)
			c.Add(fmt.Sprintf("anonymous memory of %s, %s, MiB", name, when), m.Anon)
		}
	}
	c.Add(fmt.Sprintf("PSS, %s, MiB", when), total.PSS)
	c.Add(fmt.Sprintf("anonymous memory in it, %s, MiB", when), total.Anon)
	c.Add(fmt.Sprintf("pages of files in it, %s, MiB", when), total.File)
	return nil
}

// burstProfile is how many seconds of a burst podsync's CPU profile covers.
const burstProfile = 20

// profileBurst takes podsync's CPU profile meanwhile, as podsync.cpu, when the
// command line names a directory; wait returns once it is written.
func profileBurst(ctx context.Context, s Settings, st *stage.Stage) (wait func() error, err error) {
	if s.Profiles == "" || st.Node.Processes[node.Podsync] == nil {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(s.Profiles, 0o755); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		done <- profile.Save(ctx, filepath.Join(st.Node.SocketDir, node.Podsync+".sock"), filepath.Join(s.Profiles, "podsync.cpu"),
			&commonv1.GetProfileRequest{Name: "profile", Seconds: burstProfile})
	}()
	return func() error { return <-done }, nil
}
