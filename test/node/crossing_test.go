package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpc"
)

const (
	// crossings is how often a threshold of memory is crossed.
	crossings = 3
	// seldom is how often who watches in this test has all measured: a look that is due
	// comes after a quarter of it, long after the test.
	seldom = time.Hour
	// heardWithin is far more than a notice takes on a busy machine, and far less than
	// what is due takes.
	heardWithin = 30 * time.Second
	// armedEventfds are what stats has when the kernel tells of crossings: one of Go's, and
	// for nodestatus and for the test each one that ends what is told and one on which a
	// crossing is told. Without the latter memory would be looked at each second.
	armedEventfds = 1 + 2*2
)

// How long it is until a shortage of memory is known, by itself, and then until somebody goes.
// Without the kernel's notices memory is looked at once a second. With them nobody looks until
// the kernel tells: who watches here, and has all measured once in 15 minutes, hears of the
// crossing by that alone.
func TestMemoryThatCrossesItsThresholdIsKnownBeforeAnybodyGoes(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(map[bool]string{false: "looked at", true: "told by the kernel"}[told], func(t *testing.T) {
			var info unix.Sysinfo_t
			if err := unix.Sysinfo(&info); err != nil {
				t.Fatal(err)
			}
			h := build(t, plan{overrides: map[string]any{
				"kubeReserved":                     map[string]any{"memory": fmt.Sprint(info.Totalram*uint64(info.Unit) - podsMemory<<20)},
				"evictionHard":                     map[string]any{"memory.available": fmt.Sprintf("%dMi", keepFree), "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
				"evictionPressureTransitionPeriod": "2s", "kernelMemcgNotification": told,
			}})
			if onKubelet() {
				t.Skip("the kubelet has no SetPressure and no stream of signals")
			}
			h.eventually(time.Minute, "the pods' memory is limited", func() error {
				_, err := h.podsLeft()
				return err
			})
			var heard <-chan time.Time
			if told && !unified() { // cgroup v2 tells of no threshold.
				heard = h.hears()
				h.eventually(time.Minute, "the kernel is asked to tell", func() error {
					return boolError(h.eventfds() == armedEventfds, "stats has %d eventfds, not %d", h.eventfds(), armedEventfds)
				})
			}
			for n := range crossings {
				h.crosses(fmt.Sprintf("hog-%d", n), heard)
			}
		})
	}
}

// crosses has a pod cross the threshold, and writes down when that was known to whom; heard,
// if it is not nil, is when who watches here has heard of it.
func (h *house) crosses(name string, heard <-chan time.Time) {
	h.Helper()
	ctx, stop := context.WithTimeout(h.ctx, 3*time.Minute)
	defer stop()
	crossed := make(chan time.Time, 1)
	go func() { // as fine as the kernel's account is
		for ctx.Err() == nil {
			if left, err := h.podsLeft(); err == nil && left < keepFree<<20 {
				crossed <- time.Now()
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	created := time.Now()
	h.create(app(name, "take", fmt.Sprintf("mebibytes=%d", podsMemory-keepFree+30)))
	var at, known, ended time.Time
	select {
	case at = <-crossed:
	case <-ctx.Done():
		h.Fatal("the threshold is not crossed")
	}
	h.quietly(time.Minute, "podsync is told", func() error {
		known = h.pressureKnown(created) // Who is told may be quicker than who looks here.
		return boolError(!known.IsZero(), "nodestatus has not told podsync")
	})
	h.quietly(time.Minute, name+" ends", func() error {
		var err error
		ended, err = h.endOf(name)
		return errors.Join(err, boolError(!ended.IsZero(), "it has not ended"))
	})
	text := fmt.Sprintf("podsync knows of it %s after it, and the hog has ended after %s", known.Sub(at).Round(time.Millisecond), ended.Sub(at).Round(time.Millisecond))
	if heard != nil {
		select {
		case when := <-heard:
			text += fmt.Sprintf("; who looks at nothing has heard of it after %s", when.Sub(at).Round(time.Millisecond))
		case <-time.After(heardWithin):
			h.Errorf("who looks at nothing has not heard of the crossing by %s after it", time.Since(at))
		}
	}
	h.Logf("MEASURED crossing: %s", text)
	h.wantEvicted(name, `The node was low on resource: memory\. .*`, true)
	h.eventually(time.Minute, "the node is short of nothing again", h.noPressure)
}

// hears watches the signals as nodestatus does, but for how often all are measured, and says
// each time that less is left than has to be, after enough was.
func (h *house) hears() <-chan time.Time {
	h.Helper()
	conn, err := rpc.Dial(filepath.Join(h.node.SocketDir, "stats.sock"))
	h.must(err)
	h.Cleanup(func() { conn.Close() })
	stream, err := statsv1.NewStatsServiceClient(conn).WatchSignals(h.ctx, &statsv1.WatchSignalsRequest{
		Period: durationpb.New(seldom), Marks: []*statsv1.Mark{{Signal: "allocatableMemory.available", Quantity: keepFree << 20}},
	})
	h.must(err)
	_, err = stream.Recv() // All is measured once, and what the kernel is to tell is known.
	h.must(err)
	heard := make(chan time.Time, crossings)
	go func() {
		for short := false; ; {
			frame, err := stream.Recv()
			if err != nil {
				return
			}
			for _, s := range frame.GetSignals() {
				if s.GetName() != "allocatableMemory.available" {
					continue
				}
				was := short
				if short = s.GetAvailable() < keepFree<<20; short && !was {
					heard <- time.Now()
				}
			}
		}
	}()
	return heard
}

// eventfds is how many eventfds stats has.
func (h *house) eventfds() (n int) {
	h.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", h.agentPIDs()["stats"]))
	h.must(err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

// podsLeft is what all pods may take yet, by the kernel's own account.
func (h *house) podsLeft() (uint64, error) {
	dir, limit, usage, idle := filepath.Join("/sys/fs/cgroup/memory", h.inst.CgroupRoot(), "kubepods"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if unified() {
		dir, limit, usage, idle = filepath.Join("/sys/fs/cgroup", h.inst.CgroupRoot(), "kubepods"), "memory.max", "memory.current", "inactive_file"
	}
	numbers := make([]uint64, 3)
	for i, file := range []string{limit, usage, "memory.stat"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0, err
		}
		text := string(data)
		if i == 2 {
			_, text, _ = strings.Cut("\n"+text, "\n"+idle+" ")
		}
		if _, err := fmt.Sscan(text, &numbers[i]); err != nil {
			return 0, err
		}
	}
	if numbers[0] > 1<<40 {
		return 0, errors.New("there is no limit")
	}
	return numbers[0] - min(numbers[0], numbers[1]-min(numbers[1], numbers[2])), nil
}

// pressureKnown is when nodestatus had told podsync that memory is short, after a moment,
// by what it logs; zero: not yet.
func (h *house) pressureKnown(after time.Time) time.Time {
	h.Helper()
	data, err := os.ReadFile(h.node.Processes["nodestatus"].LogFile())
	h.must(err)
	for _, m := range regexp.MustCompile(`(?m)^I(\d{4} \d\d:\d\d:\d\d\.\d{6}).*Pressure changed, podsync knows.*MemoryPressure`).FindAllStringSubmatch(string(data), -1) {
		at, err := time.ParseInLocation("20060102 15:04:05.000000", fmt.Sprint(after.Year())+m[1], time.Local)
		if err == nil && at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// endOf is when the runtime says that a pod's container has ended.
func (h *house) endOf(pod string) (time.Time, error) {
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	}})
	if err != nil || len(list.GetContainers()) == 0 {
		return time.Time{}, errors.Join(err, errors.New("there is no container"))
	}
	c, err := h.runtime.Runtime().ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.GetContainers()[0].GetId()})
	if err != nil || c.GetStatus().GetFinishedAt() == 0 {
		return time.Time{}, err
	}
	return time.Unix(0, c.GetStatus().GetFinishedAt()), nil
}
