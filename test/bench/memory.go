package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/test/harness/node"
)

// settled is after how long an agent has given back what its start needed.
const settled = 45 * time.Second

// measureMemory takes only what the agent's processes hold, each by itself and
// together: soon after the start and when they have settled, without pods and
// with a burst of them. Unlike the times, these figures do not change with what
// else the machine does.
func measureMemory(ctx context.Context, s settings, st *stage, c *column) error {
	if err := waitForNode(ctx, st); err != nil {
		return err
	}
	o, err := observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.watch.Stop()
	if err := takeTwice(ctx, s, st, c, "no pods"); err != nil {
		return err
	}
	before, err := cpuOfEach(st)
	if err != nil {
		return err
	}
	if err := life(ctx, st, o, burstNames(s.burst), c, fmt.Sprintf("%d pods", s.burst), func() error {
		return takeTwice(ctx, s, st, c, fmt.Sprintf("%d pods", s.burst))
	}); err != nil {
		return fmt.Errorf("%w%s", err, st.node.Logs(30))
	}
	after, err := cpuOfEach(st)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		c.add(fmt.Sprintf("CPU of %s per pod, idle minute included, ms", name), (after[name]-before[name])/float64(s.burst))
	}
	return err
}

func cpuOfEach(st *stage) (map[string]float64, error) {
	used := map[string]float64{}
	for name, p := range st.node.Processes {
		cpu, err := cpuOf(p.Pid())
		if err != nil {
			return nil, fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
		used[name] = cpu
	}
	return used, nil
}

func takeTwice(ctx context.Context, s settings, st *stage, c *column, when string) error {
	for _, at := range []struct {
		name  string
		after time.Duration
	}{{when + ", at first", settle}, {when + ", settled", settled - settle}} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(at.after):
		}
		if err := addMemory(st, c, at.name); err != nil {
			return err
		}
	}
	return saveProfiles(ctx, s, st, strings.ReplaceAll(when, " ", "-"))
}

// addMemory adds rows for all processes together and, if there are several, for
// each.
func addMemory(st *stage, c *column, when string) error {
	var total pages
	for _, name := range slices.Sorted(maps.Keys(st.node.Processes)) {
		m, err := pagesOf(st.node.Processes[name].Pid())
		if err != nil {
			return fmt.Errorf("read the memory of %s: %w", name, err)
		}
		total.pss, total.anon, total.file = total.pss+m.pss, total.anon+m.anon, total.file+m.file
		if len(st.node.Processes) > 1 {
			c.add(fmt.Sprintf("PSS of %s, %s, MiB", name, when), m.pss)
			c.add(fmt.Sprintf("anonymous memory of %s, %s, MiB", name, when), m.anon)
		}
	}
	c.add(fmt.Sprintf("PSS, %s, MiB", when), total.pss)
	c.add(fmt.Sprintf("anonymous memory in it, %s, MiB", when), total.anon)
	c.add(fmt.Sprintf("pages of files in it, %s, MiB", when), total.file)
	return nil
}

// saveProfiles writes the heap of each of polylet's processes, as
// PROCESS-WHEN.heap, when the command line names a directory for them.
func saveProfiles(ctx context.Context, s settings, st *stage, when string) error {
	if s.profiles == "" || st.node.SocketDir == "" || len(st.node.Processes) == 1 {
		return nil
	}
	if err := os.MkdirAll(s.profiles, 0o755); err != nil {
		return err
	}
	for name := range st.node.Processes {
		path := filepath.Join(s.profiles, name+"-"+when+".heap")
		request := &commonv1.GetProfileRequest{Name: "heap", Gc: true}
		if err := saveProfile(ctx, filepath.Join(st.node.SocketDir, name+".sock"), path, request); err != nil {
			return fmt.Errorf("heap profile of %s: %w", name, err)
		}
	}
	return nil
}

// burstProfile is how many seconds of a burst podsync's CPU profile covers.
const burstProfile = 20

// profileBurst takes podsync's CPU profile meanwhile, as podsync.cpu, when the
// command line names a directory; wait returns once it is written.
func profileBurst(ctx context.Context, s settings, st *stage) (wait func() error, err error) {
	if s.profiles == "" || st.node.Processes[node.Podsync] == nil {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(s.profiles, 0o755); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		done <- saveProfile(ctx, filepath.Join(st.node.SocketDir, node.Podsync+".sock"), filepath.Join(s.profiles, "podsync.cpu"),
			&commonv1.GetProfileRequest{Name: "profile", Seconds: burstProfile})
	}()
	return func() error { return <-done }, nil
}

// saveProfile writes one profile of the process behind the socket.
func saveProfile(ctx context.Context, socket, path string, request *commonv1.GetProfileRequest) error {
	conn, err := rpc.Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := commonv1.NewCommonServiceClient(conn).GetProfile(ctx, request)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(piece.GetData()); err != nil {
			return err
		}
	}
}
