package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/collector"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// memory is a machine that has the root cgroup only; of others nothing is asked.
type memory struct {
	sampler.Cgroups
	mu   sync.Mutex
	used uint64 // 0: it cannot be read
	// count is how often the root was read.
	count int
}

func (m *memory) use(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = bytes
}

func (m *memory) Read(name string, _ cgroup.Part) (*model.ContainerStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name != "/" || m.used == 0 {
		return nil, os.ErrNotExist
	}
	m.count++
	return &model.ContainerStats{Timestamp: time.Now(), Memory: &model.MemoryStats{WorkingSet: m.used}}, nil
}

func (*memory) MemoryLimit(string) uint64 { return 1 << 63 }

// newServer is one of a node whose cgroups are used, and whose proc filesystem is proc.
func newServer(t *testing.T, used *memory, proc process.Proc) *Server {
	t.Helper()
	return newServerOf(t, used, proc, nil)
}

// newServerOf is newServer with the kernel's notices of cgroups; nil: without.
func newServerOf(t *testing.T, used *memory, proc process.Proc, dirs collector.CgroupDirs) *Server {
	t.Helper()
	names, description, dir := &inventory.Table{}, machine.New(time.Hour), t.TempDir()
	return New(Deps{
		Machine: description, Proc: proc, Epoch: 7,
		Collector: collector.New(collector.Config{RootDir: dir, PodsCgroup: "/kubepods"}, collector.Deps{
			Meter: sampler.New(sampler.Roots{Pods: "/kubepods"}, sampler.Deps{Cgroups: used, Names: names, Proc: proc, Machine: description}),
			Names: names, Machine: description, Proc: proc, Cgroups: dirs,
			Runtime: disk.NewRuntime(time.Second, func(context.Context) (disk.RuntimeUsage, error) { return disk.RuntimeUsage{}, nil }),
		}),
	})
}

// stream keeps what is sent.
type stream[F any] struct {
	grpc.ServerStreamingServer[F]
	ctx context.Context

	mu   sync.Mutex
	sent []*F
}

func (s *stream[F]) Context() context.Context { return s.ctx }

func (s *stream[F]) Send(f *F) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, f)
	return nil
}

func (s *stream[F]) all() []*F {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func TestTheMachineIsToldWithWhatItsDocumentLacks(t *testing.T) {
	res, err := newServer(t, &memory{}, "/proc").GetMachine(t.Context(), &statsv1.GetMachineRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if res.GetRootFsCapacityBytes() == 0 || res.GetMaxPid() == 0 || res.GetNumCores() == 0 || !strings.Contains(string(res.GetMachineInfoJson()), `"num_cores"`) {
		t.Errorf("%v", res)
	}
}

func TestWhatCannotBeMeasuredIsUnavailable(t *testing.T) {
	s := newServer(t, &memory{}, process.Proc(t.TempDir()))
	if _, err := s.GetMachine(t.Context(), &statsv1.GetMachineRequest{}); !errors.Is(err, rpcerr.ErrUnavailable) {
		t.Errorf("the machine: %v", err)
	}
	if _, err := s.GetSummary(t.Context(), &statsv1.GetSummaryRequest{}); !errors.Is(err, rpcerr.ErrUnavailable) {
		t.Errorf("the summary: %v", err)
	}
}
