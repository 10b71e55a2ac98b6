// Package server is the gRPC face of stats: it turns requests into questions
// to the collector and documents into bytes. It must never measure by itself.
package server

import (
	"context"
	"encoding/json"
	"fmt"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/collector"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

// Deps is what the server serves.
type Deps struct {
	Collector *collector.Collector
	Machine   *machine.Machine
	Proc      process.Proc
	// Kernel has the processes that were killed for lack of memory, Names whose they were.
	Kernel *kernellog.Log
	Names  *inventory.Table
	// Epoch is the process's.
	Epoch uint64
}

// Server implements StatsService.
type Server struct {
	statsv1.UnimplementedStatsServiceServer
	Deps
}

// New returns a Server.
func New(deps Deps) *Server { return &Server{Deps: deps} }

// GetSummary implements StatsService.
func (s *Server) GetSummary(ctx context.Context, r *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	asked := collector.Asked{OnlyCPUAndMemory: r.GetOnlyCpuAndMemory(), Renew: r.GetRenewDisk(), RenewLayers: r.GetRenewLayers(), Ended: r.GetCountEnded(), Of: r.GetRenewPodUids()}
	if t := r.GetRenewSince(); t.IsValid() {
		asked.Since = t.AsTime()
	}
	facts, err := s.Collector.Summary(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("%w: make the summary: %w", rpcerr.ErrUnavailable, err)
	}
	data, err := json.Marshal(summary.Build(facts))
	if err != nil {
		return nil, fmt.Errorf("write the summary as JSON: %w", err)
	}
	out := &statsv1.GetSummaryResponse{SummaryJson: data, Nameless: s.Names.View().Version == 0}
	if r.GetCountThreads() {
		out.Threads = s.Collector.Threads(facts.Rows)
	}
	if facts.Disk != nil {
		out.UnweighedPodUids, out.UnmeasuredPodUids, out.UnsurePodUids = facts.Disk.Unweighed, facts.Disk.Unmeasured, facts.Disk.Unsure
	}
	return out, nil
}

// GetMachine implements StatsService.
func (s *Server) GetMachine(ctx context.Context, _ *statsv1.GetMachineRequest) (*statsv1.GetMachineResponse, error) {
	info, err := s.Machine.Info()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	data, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("write the machine document as JSON: %w", err)
	}
	out := &statsv1.GetMachineResponse{
		MachineInfoJson: data, NumCores: int32(info.NumCores), //nolint:gosec // A number of CPUs.
		MemoryCapacityBytes: info.MemoryCapacity, SwapCapacityBytes: info.SwapCapacity,
		MachineId: info.MachineID, SystemUuid: info.SystemUUID, BootId: info.BootID,
	}
	for _, h := range info.HugePages {
		out.HugePages = append(out.HugePages, &statsv1.HugePages{PageSizeBytes: h.PageSize << 10, Count: h.NumPages})
	}
	root, err := s.Collector.Root(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	out.RootFsCapacityBytes = root.Capacity
	numbers, err := s.Proc.Numbers()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	out.MaxPid = numbers.Max
	return out, nil
}
