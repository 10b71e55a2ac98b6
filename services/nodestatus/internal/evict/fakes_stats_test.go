package evict

import (
	"context"
	"errors"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

func (w *world) Summary(_ context.Context, detail Detail) (*statsapi.Summary, error) {
	w.mu.Lock()
	walks, weighs := w.walks, w.weighs
	w.mu.Unlock()
	if weighs != nil && detail == weighed {
		weighs()
	}
	if walks != nil && detail == renewed {
		walks()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.summaries = append(w.summaries, detail)
	brief := detail == Brief
	if w.statsErr != nil {
		return nil, w.statsErr
	}
	memory, disk := w.leftLocked()
	used, whole, now := uint64(capacity-memory), uint64(capacity), metav1.Now()
	out := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: now, AvailableBytes: &memory, WorkingSetBytes: &used},
	}}
	if !brief && !w.blind {
		out.Node.Fs = &statsapi.FsStats{Time: now, AvailableBytes: &disk, CapacityBytes: &whole}
		if w.inodesLeft > 0 {
			left := w.inodesLeft
			out.Node.Fs.InodesFree, out.Node.Fs.Inodes = &left, &whole
		}
	}
	if !brief {
		most, running := int64(allPIDs), int64(allPIDs-w.pidsLeftLocked()) //nolint:gosec // At most a thousand.
		out.Node.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: &most, NumOfRunningProcesses: &running}
	}
	for _, p := range w.pods {
		memory, known := w.memory[p.Name]
		if !known {
			continue
		}
		s := statsapi.PodStats{PodRef: statsapi.PodReference{UID: string(p.UID)}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory}}
		s.Containers = []statsapi.ContainerStats{{Name: "c", Memory: s.Memory}}
		if n, told := w.pids[p.Name]; told {
			s.ProcessStats = &statsapi.ProcessStats{ProcessCount: &n}
		}
		disk := w.disk[p.Name]
		if old, measured := w.walked[p.Name]; measured && detail != renewed {
			disk = old
		}
		if !brief {
			if layer := new(uint64); !w.unweighed[p.Name] {
				at, old := w.layersAt[p.Name]
				if !old {
					at = now.Time
				}
				*layer = w.layers[p.Name]
				s.Containers[0].Rootfs = &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: layer}
			}
			if w.sums {
				disk /= 2
			}
			s.Containers[0].Logs = &statsapi.FsStats{UsedBytes: &disk, CapacityBytes: &whole}
			s.VolumeStats = []statsapi.VolumeStats{{Name: "scratch", FsStats: statsapi.FsStats{UsedBytes: &disk, CapacityBytes: &whole}}}
		}
		if w.sums {
			sum := 2 * disk
			s.EphemeralStorage = &statsapi.FsStats{UsedBytes: &sum, CapacityBytes: &whole}
		}
		out.Pods = append(out.Pods, s)
	}
	return out, nil
}

func (w *world) Weighed(ctx context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	summary, err := w.Summary(ctx, weighed)
	w.mu.Lock()
	defer w.mu.Unlock()
	return summary, maps.Clone(w.counts), err
}

func (w *world) Renewed(ctx context.Context, since time.Time, pods ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	w.mu.Lock()
	takes := w.renewTakes
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, eviction.Late{}, ctx.Err()
	}
	summary, err := w.Summary(ctx, renewed)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sinces, w.anew = append(w.sinces, since), append(w.anew, pods)
	late := eviction.Late{Layers: map[types.UID]bool{}, Directories: map[types.UID]bool{}}
	for name := range w.long {
		late.Directories[types.UID(name)] = w.slowly == 0 || since.IsZero() || time.Since(since) < w.slowly
	}
	for name := range w.late {
		late.Layers[types.UID(name)] = true
	}
	return summary, late, err
}

func (w *world) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	w.mu.Lock()
	takes := w.lookTakes
	w.looks++
	unlookable := w.unlookable
	w.mu.Unlock()
	if unlookable {
		return nil, nil, false, errors.New("nobody may look")
	}
	time.Sleep(takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[types.UID][]eviction.Unlinked{}
	for name, bytes := range w.unlinked {
		out[types.UID(name)] = []eviction.Unlinked{{Container: "c", Root: eviction.Files{Bytes: bytes, Count: 1}, Largest: "/scratch/" + name}}
	}
	late := map[types.UID]bool{}
	for name := range w.someOf {
		late[types.UID(name)] = true
	}
	return out, late, !w.some && len(late) == 0, nil
}
