package sampler

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
)

// crowd is Cgroups of which those with "many" in their names have so many processes
// that their files are never counted to the end; the others have this one.
type crowd struct {
	Cgroups
	names
}

func (c crowd) Walk(root string, leaf func(string) bool) ([]string, error) {
	return c.names.Walk(root, leaf)
}
func (c crowd) Exists(name string) bool { return c.names.Exists(name) }

func (crowd) Read(string, cgroup.Part) (*model.ContainerStats, error) {
	return &model.ContainerStats{Timestamp: time.Now(), Cpu: &model.CpuStats{}, Memory: &model.MemoryStats{}}, nil
}
func (crowd) CPU(string) (uint64, bool)         { return 0, false }
func (crowd) Spec(string) model.ContainerSpec   { return model.ContainerSpec{} }
func (crowd) MemoryLimit(string) uint64         { return 0 }
func (crowd) SwapLimit(string) (uint64, bool)   { return 0, false }
func (crowd) Created(string) time.Time          { return time.Time{} }
func (crowd) Threads(string) uint64             { return 0 }
func (crowd) ThreadsMax(string) uint64          { return 0 }
func (crowd) Info() (*model.MachineInfo, error) { return &model.MachineInfo{}, nil }
func (crowd) FilesystemStats() ([]model.FsStats, error) {
	return nil, nil
}

func (crowd) PIDs(name string) []int {
	if strings.Contains(name, "many") {
		return slices.Repeat([]int{os.Getpid()}, 10_000_000)
	}
	return []int{os.Getpid()}
}

// TestAContainerWhoseFilesAreWithoutEndHoldsUpNoStatistics: thousands of processes
// may share a table of a million open files, which costs a container nothing.
func TestAContainerWhoseFilesAreWithoutEndHoldsUpNoStatistics(t *testing.T) {
	c := crowd{names: names{"/kubepods", "/kubepods/podmany1", "/kubepods/podmany2", "/kubepods/podother"}}
	m := New(Roots{Pods: "/kubepods"}, Deps{Cgroups: c, Names: &inventory.Table{}, Proc: process.Proc("/proc"), Machine: c})
	m.ShareFor(time.Nanosecond) // each answer is measured anew, and waits for the counts
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type answer struct {
		rows []Row
		err  error
	}
	for began := time.Now(); ; {
		full, basic := make(chan answer, 1), make(chan answer, 1)
		go func() { rows, err := m.Rows(ctx, Full); full <- answer{rows, err} }()
		go func() { rows, err := m.Rows(ctx, Basic); basic <- answer{rows, err} }()
		var got answer
		for _, one := range []chan answer{full, basic} {
			select {
			case a := <-one:
				if a.err != nil {
					t.Fatal(a.err)
				}
				if one == full {
					got = a
				}
			case <-ctx.Done():
				t.Fatal("the statistics of the node wait for the files of one container")
			}
		}
		counted := 0
		for _, row := range got.rows {
			if row.Stats.Processes.FdCount > 0 {
				counted++
			}
		}
		if counted == 5 { // the machine, all pods, and the three
			t.Logf("all are counted after %v", time.Since(began))
			return
		}
	}
}
