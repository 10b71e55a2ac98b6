package nodepage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Usage is one sample of what everything uses.
type Usage struct {
	Time time.Time `json:"time"`
	Node Amount    `json:"node"`
	// Containers by pod UID, "/" and container name.
	Containers map[string]Amount `json:"containers"`
	Problem    string            `json:"problem,omitempty"`
}

// Amount is what one thing uses.
type Amount struct {
	// CPU in cores.
	CPU float64 `json:"cpu"`
	// Memory is the working set in bytes.
	Memory uint64 `json:"memory"`
	// Disk in bytes: the node's root filesystem, a container's layer and logs.
	Disk         uint64 `json:"disk,omitempty"`
	DiskCapacity uint64 `json:"diskCapacity,omitempty"`
}

func (p *page) askUsage(ctx context.Context) any {
	out := Usage{Time: time.Now(), Containers: map[string]Amount{}}
	document, err := p.cfg.Peers.Summary(ctx)
	if err != nil {
		out.Problem = "stats: " + httperror.Message(err)
		return out
	}
	var s statsapi.Summary
	if err := json.Unmarshal(document, &s); err != nil {
		out.Problem = fmt.Sprintf("stats: its summary cannot be read: %v", err)
		return out
	}
	out.fill(&s)
	return out
}

func (u *Usage) fill(s *statsapi.Summary) {
	u.Node = amountOf(s.Node.CPU, s.Node.Memory)
	if fs := s.Node.Fs; fs != nil {
		u.Node.Disk, u.Node.DiskCapacity = value(fs.UsedBytes), value(fs.CapacityBytes)
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		for j := range pod.Containers {
			c := &pod.Containers[j]
			a := amountOf(c.CPU, c.Memory)
			for _, fs := range []*statsapi.FsStats{c.Rootfs, c.Logs} {
				if fs != nil {
					a.Disk += value(fs.UsedBytes)
				}
			}
			u.Containers[pod.PodRef.UID+"/"+c.Name] = a
		}
	}
}

func amountOf(c *statsapi.CPUStats, m *statsapi.MemoryStats) Amount {
	var a Amount
	if c != nil {
		a.CPU = float64(value(c.UsageNanoCores)) / 1e9
	}
	if m != nil {
		a.Memory = value(m.WorkingSetBytes)
	}
	return a
}

func value(v *uint64) uint64 {
	if v == nil {
		return 0
	}
	return *v
}
