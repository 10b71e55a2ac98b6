package peer

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// machinePeriod is between two looks at the machine: memory and huge pages may
// be added while it runs.
const machinePeriod = 5 * time.Minute

// Stats asks stats.
type Stats struct {
	client statsv1.StatsServiceClient
	health health.Reporter
	store  *Store
	// period is the longest time between two frames of signals; marks are what they
	// are looked at for.
	period time.Duration
	marks  []*statsv1.Mark
}

// NewStats returns a client; period is the longest time between two frames of
// signals, thresholds are what they are looked at for.
func NewStats(conn grpc.ClientConnInterface, reporter health.Reporter, store *Store, period time.Duration, thresholds []threshold.Threshold) *Stats {
	s := &Stats{client: statsv1.NewStatsServiceClient(conn), health: reporter, store: store, period: period}
	for _, t := range thresholds {
		s.marks = append(s.marks, &statsv1.Mark{Signal: t.Signal, Quantity: t.Quantity, Percent: t.Percent})
	}
	return s
}

// RunMachine follows the machine's description until ctx is done.
func (s *Stats) RunMachine(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2})
	for {
		wait := machinePeriod
		if err := s.askMachine(ctx); err != nil {
			wait = retry.Next() // RunSignals reports that stats is away.
		} else {
			retry.Reset()
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (s *Stats) askMachine(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := s.client.GetMachine(ctx, &statsv1.GetMachineRequest{})
	if err != nil {
		return fmt.Errorf("ask stats for the machine: %w", err)
	}
	m := &node.Machine{
		Cores: int(r.GetNumCores()), MemoryBytes: r.GetMemoryCapacityBytes(), SwapBytes: r.GetSwapCapacityBytes(),
		RootFilesystemBytes: r.GetRootFsCapacityBytes(), MaxPIDs: r.GetMaxPid(), MachineID: r.GetMachineId(), SystemUUID: r.GetSystemUuid(), BootID: r.GetBootId(),
	}
	for _, h := range r.GetHugePages() {
		m.HugePages = append(m.HugePages, node.HugePages{SizeBytes: h.GetPageSizeBytes(), Count: h.GetCount()})
	}
	s.store.update(func(f *node.Facts) bool {
		same := reflect.DeepEqual(f.Machine, m)
		f.Machine = m
		return !same
	})
	return nil
}

// RunSignals follows the eviction signals until ctx is done. Signals carry all
// state in each frame, so a stream that ended is simply opened again.
func (s *Stats) RunSignals(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2})
	for {
		err := s.follow(ctx, func() {
			retry.Reset()
			s.health.Set(service.Stats, true, "")
		})
		if ctx.Err() != nil {
			return nil
		}
		s.health.Set(service.Stats, false, fmt.Sprintf("follow the eviction signals of stats: %v; capacity and pressure stay as they were", err))
		if !sleep(ctx, retry.Next()) {
			return nil
		}
	}
}

// silence is how long there may be no frame on a stream: a stats that measures nothing any
// more sends none, and says why to whoever asks anew.
func (s *Stats) silence() time.Duration { return 3*s.period + callDeadline }

func (s *Stats) follow(parent context.Context, heard func()) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	late := time.AfterFunc(s.silence(), func() {
		cancel(fmt.Errorf("%w: it is there, and has told nothing for %s", rpcerr.ErrTimeout, s.silence()))
	})
	defer late.Stop()
	stream, err := s.client.WatchSignals(ctx, &statsv1.WatchSignalsRequest{Period: durationpb.New(s.period), Marks: s.marks})
	if err != nil {
		return err
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && parent.Err() == nil {
				return cause
			}
			return err
		}
		late.Reset(s.silence())
		heard()
		signals := make([]pressure.Signal, 0, len(frame.GetSignals()))
		for _, x := range frame.GetSignals() {
			signal := pressure.Signal{Name: x.GetName(), Available: x.GetAvailable(), Capacity: x.GetCapacity()}
			if x.GetTime().IsValid() {
				signal.Time = x.GetTime().AsTime()
			}
			signals = append(signals, signal)
		}
		s.store.setFrame(pressure.Frame{
			Signals: signals, Heard: time.Now(), Layout: threshold.Layout{ImagesApart: frame.GetImagesApart(), ContainersApart: frame.GetContainersApart()},
		})
	}
}
