package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

const (
	// walkPeriod is between two measurements of directories, weighPeriod of layers.
	walkPeriod  = time.Minute
	weighPeriod = 10 * time.Second
	// renewing is how long directories are measured for who asks.
	renewing = 3 * time.Second
)

func (w *world) statsHandles(ctx context.Context, _ *run, method string, req proto.Message) (proto.Message, error) {
	switch r := req.(type) {
	case *statsv1.GetMachineRequest:
		return &statsv1.GetMachineResponse{NumCores: 4, MemoryCapacityBytes: w.machine.capacity[memory], RootFsCapacityBytes: w.machine.capacity[nodeBytes], BootId: "b", MachineId: "m"}, nil
	case *statsv1.GetSummaryRequest:
		return w.summary(ctx, r)
	case *statsv1.ListUnlinkedFilesRequest:
		w.mu.Lock()
		defer w.mu.Unlock()
		out := &statsv1.ListUnlinkedFilesResponse{}
		for i, p := range w.podsLocked() {
			u := w.machine.uses[p.name]
			if w.manyFiles && p.runs() && i%3 == 0 {
				out.Incomplete = true
				out.Containers = append(out.Containers, &statsv1.UnlinkedFiles{PodUid: p.uid(), Container: container, Incomplete: true})
				continue
			}
			if p.runs() && u.removed > 0 {
				out.Containers = append(out.Containers, &statsv1.UnlinkedFiles{
					PodUid: p.uid(), Container: container, RootBytes: u.removed, RootFiles: 1, Largest: "/scratch/x",
					Volumes: []*statsv1.UnlinkedInVolume{{Volume: volume, Bytes: u.removed, Files: 1}},
				})
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: %s", rpcerr.ErrUnimplemented, method)
}

// measureLocked has stats know what lies in a pod's directories.
func (p *pod) measureLocked(u use, now time.Time) {
	before := p.known
	p.known, p.walkedAt, p.walking = u, now, time.Time{}
	p.known.layer, p.known.layerFiles, p.known.kept, p.known.keptFiles = before.layer, before.layerFiles, before.kept, before.keptFiles
}

func (p *pod) weighLocked(u use, now time.Time) {
	p.known.layer, p.known.layerFiles, p.known.kept, p.known.keptFiles, p.weighedAt = u.layer, u.layerFiles, u.kept, u.keptFiles, now
}

// measures is stats measuring in the background; it is called each second.
func (w *world) measures(second int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, p := range w.podsLocked() {
		u := w.machine.uses[p.name]
		if !p.alive || w.hung[nodeBytes] {
			continue
		}
		if second%int(weighPeriod/time.Second) == 0 {
			p.weighLocked(u, now)
		}
		if !p.walking.IsZero() && now.Sub(p.walking) >= p.slow {
			began := p.walking
			p.measureLocked(u, now)
			p.walkedAt = began
		}
		if second%int(walkPeriod/time.Second) == 0 && p.walking.IsZero() {
			if p.slow > 0 {
				p.walking = now
			} else {
				p.measureLocked(u, now)
			}
		}
	}
}

func (w *world) summary(ctx context.Context, r *statsv1.GetSummaryRequest) (proto.Message, error) {
	out := &statsv1.GetSummaryResponse{}
	if r.GetRenewDisk() {
		if !pause(ctx, w.renew(r.GetRenewSince())) {
			return nil, ended(ctx)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.GetRenewDisk() {
		w.renewedLocked(r.GetRenewSince(), out)
	}
	if r.GetRenewLayers() && !w.hung[nodeBytes] {
		for _, p := range w.podsLocked() {
			p.weighLocked(w.machine.uses[p.name], time.Now())
		}
	}
	if now := time.Now(); now.Before(w.namelessUntil) {
		out.Nameless = true
	}
	s := statsapi.Summary{Node: w.nodeLocked(r.GetOnlyCpuAndMemory())}
	for _, p := range w.podsLocked() {
		if p.alive && time.Since(p.began) > time.Second && (p.runs() || r.GetCountEnded()) {
			s.Pods = append(s.Pods, w.figuresLocked(p, r))
		}
	}
	w.judge.lookedLocked(s.Node)
	data, err := json.Marshal(s)
	out.SummaryJson = data
	return out, err
}

// renew begins to measure what was not since a time, and says how long that takes.
func (w *world) renew(since *timestamppb.Timestamp) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hung[nodeBytes] {
		return renewing
	}
	takes := 30 * time.Millisecond
	for _, p := range w.podsLocked() {
		if p.slow == 0 || !p.alive || since != nil && !p.walkedAt.Before(since.AsTime()) {
			continue
		}
		if p.walking.IsZero() {
			p.walking = time.Now()
		}
		takes = max(takes, min(renewing, time.Until(p.walking.Add(p.slow))))
	}
	return takes
}

// renewedLocked takes in what was measured, and says what was not.
func (w *world) renewedLocked(since *timestamppb.Timestamp, out *statsv1.GetSummaryResponse) {
	now := time.Now()
	for _, p := range w.podsLocked() {
		u := w.machine.uses[p.name]
		switch {
		case !p.alive:
			continue
		case w.hung[nodeBytes]:
			out.UnmeasuredPodUids = append(out.UnmeasuredPodUids, p.uid())
			out.UnweighedPodUids = append(out.UnweighedPodUids, p.uid())
			continue
		case p.slow == 0:
			p.measureLocked(u, now)
		case !p.walking.IsZero() && now.Sub(p.walking) >= p.slow:
			began := p.walking
			p.measureLocked(u, now)
			p.walkedAt = began
		}
		p.weighLocked(u, now)
		if p.slow > 0 && (since == nil || p.walkedAt.Before(since.AsTime())) {
			out.UnmeasuredPodUids = append(out.UnmeasuredPodUids, p.uid())
			w.judge.lateLocked()
		}
	}
}

func number[T any](n T) *T { return &n }

// nodeLocked is what stats says of the machine now; for one look it may be wrong.
func (w *world) nodeLocked(brief bool) statsapi.NodeStats {
	m, now := w.machine, metav1.Now()
	left := m.left
	if jump := w.jumpSummary; jump != nil {
		w.jumpSummary = nil
		left = func(r good) uint64 {
			if n, wrong := jump[r]; wrong {
				return n
			}
			return m.left(r)
		}
	}
	ofMemory := func(r good) *statsapi.MemoryStats {
		available := left(r)
		return &statsapi.MemoryStats{Time: now, AvailableBytes: &available, WorkingSetBytes: number(m.capacity[r] - min(available, m.capacity[r]))}
	}
	out := statsapi.NodeStats{Memory: ofMemory(memory)}
	if m.capacity[podsMemory] > 0 {
		out.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: ofMemory(podsMemory)}}
	}
	if brief {
		return out
	}
	ofFilesystem := func(bytes, inodes good) *statsapi.FsStats {
		if w.hung[bytes] {
			return nil
		}
		return &statsapi.FsStats{
			Time: now, AvailableBytes: number(left(bytes)), CapacityBytes: number(m.capacity[bytes]), InodesFree: number(left(inodes)), Inodes: number(m.capacity[inodes]),
		}
	}
	out.Fs = ofFilesystem(nodeBytes, nodeInodes)
	out.Runtime = &statsapi.RuntimeStats{
		ImageFs:     ofFilesystem(m.imagesOn(false), m.imagesOn(true)),
		ContainerFs: ofFilesystem(m.resourceOf("containerfs.available"), m.resourceOf("containerfs.inodesFree")),
	}
	running := int64(m.capacity[pids] - min(left(pids), m.capacity[pids]))
	out.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: number(int64(m.capacity[pids])), NumOfRunningProcesses: &running}
	return out
}

// figuresLocked are those of a pod: of disks, as they were measured last.
func (w *world) figuresLocked(p *pod, r *statsv1.GetSummaryRequest) statsapi.PodStats {
	u, now := w.machine.uses[p.name], metav1.Now()
	out := statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: namespace, Name: p.name, UID: p.uid()}}
	if p.runs() {
		out.Memory = &statsapi.MemoryStats{Time: now, WorkingSetBytes: number(u.memory)}
	}
	c := statsapi.ContainerStats{Name: container, Memory: out.Memory}
	if !r.GetOnlyCpuAndMemory() {
		if p.runs() {
			out.ProcessStats = &statsapi.ProcessStats{ProcessCount: number(u.pids)}
		}
		k := p.known
		if p.slow > 0 && !p.walking.IsZero() { // what was counted until now
			part := min(1, float64(time.Since(p.walking))/float64(p.slow))
			k.volume, k.files = max(k.volume, uint64(math.Floor(part*float64(u.volume)))), max(k.files, uint64(math.Floor(part*float64(u.files))))
		}
		layers := w.machine.resourceOf("containerfs.available")
		ofLayer := func(bytes, inodes uint64) *statsapi.FsStats {
			return &statsapi.FsStats{Time: metav1.NewTime(p.weighedAt), UsedBytes: number(bytes), InodesUsed: number(inodes), CapacityBytes: number(w.machine.capacity[layers])}
		}
		c.Rootfs = ofLayer(k.layer, k.layerFiles)
		if r.GetCountEnded() && k.kept+k.keptFiles > 0 {
			out.Containers = []statsapi.ContainerStats{{Rootfs: ofLayer(k.kept, k.keptFiles)}}
		}
		c.Logs = &statsapi.FsStats{Time: metav1.NewTime(p.walkedAt), UsedBytes: number(k.logs), InodesUsed: number(uint64(0)), CapacityBytes: number(w.machine.capacity[nodeBytes])}
		out.VolumeStats = []statsapi.VolumeStats{{Name: volume, FsStats: statsapi.FsStats{Time: metav1.NewTime(p.walkedAt), UsedBytes: number(k.volume), InodesUsed: number(k.files), CapacityBytes: number(w.machine.capacity[nodeBytes])}}}
		out.EphemeralStorage = &statsapi.FsStats{UsedBytes: number(k.layer + k.logs + k.volume), CapacityBytes: number(w.machine.capacity[nodeBytes])}
	}
	out.Containers = append(out.Containers, c)
	return out
}

// statsOpens begins a stream: of signals, or one on which nothing is told.
func (w *world) statsOpens(run *run, method string, req proto.Message) func(ctx context.Context) (proto.Message, error) {
	w.mu.Lock()
	life := w.stats.life
	w.mu.Unlock()
	watch, ok := req.(*statsv1.WatchSignalsRequest)
	if !ok {
		return w.nothing(w.stats, life)
	}
	var sent *statsv1.WatchSignalsResponse
	var sentAt time.Time
	return func(ctx context.Context) (proto.Message, error) {
		for first := sent == nil; ; first = false {
			if !first && !pause(ctx, time.Second) {
				return nil, ended(ctx)
			}
			w.mu.Lock()
			away, quiet := w.stats.down || w.stats.life != life, w.stats.silent || w.stats.hangs
			frame := w.frameLocked(!quiet)
			w.mu.Unlock()
			switch {
			case away:
				return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
			case quiet || sent != nil && !w.news(sent, frame, sentAt, watch):
				continue
			}
			sent, sentAt = frame, time.Now()
			w.mu.Lock()
			w.judge.framedLocked(run, frame)
			w.mu.Unlock()
			return frame, nil
		}
	}
}

// frameLocked are the signals now; taken: one that is wrong is not so again.
func (w *world) frameLocked(taken bool) *statsv1.WatchSignalsResponse {
	out := &statsv1.WatchSignalsResponse{Epoch: uint64(w.stats.life), ImagesApart: w.machine.layout != together, ContainersApart: w.machine.layout == layersApart}
	for _, name := range w.signals() {
		r := w.machine.resourceOf(name)
		if w.hung[r] {
			continue
		}
		available := w.machine.left(r)
		if wrong, jumps := w.jumpFrame[r]; jumps {
			available = wrong
		}
		out.Signals = append(out.Signals, &statsv1.Signal{Name: name, Available: available, Capacity: w.machine.capacity[r], Time: timestamppb.Now()})
	}
	if taken {
		w.jumpFrame = nil
	}
	return out
}

// signals are those that the node has, by name.
func (w *world) signals() []string {
	out := []string{
		"containerfs.available", "containerfs.inodesFree", "imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available",
	}
	if w.machine.capacity[podsMemory] > 0 {
		out = append([]string{"allocatableMemory.available"}, out...)
	}
	return out
}

// news says whether a frame is to be told: what is asked for is crossed, or was, or it is
// time.
func (w *world) news(sent, now *statsv1.WatchSignalsResponse, at time.Time, r *statsv1.WatchSignalsRequest) bool {
	before, after := crossed(sent, r), crossed(now, r)
	return len(after) > 0 || !slices.Equal(before, after) || time.Since(at) >= r.GetPeriod().AsDuration()-500*time.Millisecond
}

func crossed(f *statsv1.WatchSignalsResponse, r *statsv1.WatchSignalsRequest) (out []string) {
	for _, s := range f.GetSignals() {
		for i, mark := range r.GetMarks() {
			level := mark.GetQuantity()
			if mark.GetPercent() > 0 {
				level = uint64(float64(s.GetCapacity()) * mark.GetPercent() / 100)
			}
			if s.GetName() == mark.GetSignal() && s.GetAvailable() < level {
				out = append(out, fmt.Sprint(s.GetName(), i))
			}
		}
	}
	return out
}
