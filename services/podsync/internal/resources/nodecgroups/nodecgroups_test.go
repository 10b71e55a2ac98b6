package nodecgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// bench is a runtime, a node and all that is told of the cgroups.
type bench struct {
	cgroup.Manager

	mu       sync.Mutex
	up       bool
	driver   cgroup.Driver
	known    bool
	err      error
	capacity v1.ResourceList
	setup    error
	limits   []cgroup.Limits
	made     []cgroup.Config
	events   []string
	rows     []string
	said     map[string]string

	guaranteed, burstable int64
	allKnown              bool
}

func (b *bench) CgroupDriver(context.Context) (cgroup.Driver, bool, error) {
	return b.driver, b.known, b.err
}

func (b *bench) Node(_, reason, message string) { b.events = append(b.events, reason+": "+message) }
func (b *bench) SetPodsCgroup(path string)      { b.rows = append(b.rows, path) }

func (b *bench) Set(name string, ready bool, message string) {
	if ready {
		message = "ready"
	}
	b.said[name] = message
}

func (b *bench) make(cfg cgroup.Config) (cgroup.Manager, error) {
	b.made = append(b.made, cfg)
	return b, nil
}

func (b *bench) Setup(_ context.Context, limits cgroup.Limits) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.setup == nil {
		b.limits = append(b.limits, limits)
	}
	return b.setup
}

func (b *bench) ParentOf(context.Context, *v1.Pod) (string, error) { return "parent", nil }

func (b *bench) change(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }

func newBench() *bench {
	return &bench{said: map[string]string{}, up: true, known: true, capacity: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1000"),
	}}
}

func (b *bench) cgroups(cfg Config, reg prometheus.Registerer) *Cgroups {
	return New(cfg, Deps{
		Runtime: b, Rows: b, Events: b, Health: b, Make: b.make, Metrics: metrics.New(reg),
		Ready: func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.up },
		Asked: func() (int64, int64, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.guaranteed, b.burstable, b.allKnown
		},
		Capacity: func() v1.ResourceList { b.mu.Lock(); defer b.mu.Unlock(); return b.capacity },
	})
}

func TestTheRuntimeSaysWhichCgroupDriverThereIs(t *testing.T) {
	for name, tc := range map[string]struct {
		driver cgroup.Driver
		known  bool
		err    error
		want   cgroup.Driver
		losing int
	}{
		"it does not know the question": {"", false, nil, "configured", 1},
		"it has none to name":           {"", true, nil, "configured", 0},
		"it says":                       {cgroup.Cgroupfs, true, nil, cgroup.Cgroupfs, 0},
		"it has the other":              {cgroup.Systemd, true, nil, cgroup.Systemd, 0},
		"it does not answer":            {"", false, errors.New("connection refused"), "", 0},
	} {
		b, reg := newBench(), prometheus.NewPedanticRegistry()
		b.driver, b.known, b.err = tc.driver, tc.known, tc.err
		driver, err := b.cgroups(Config{Driver: "configured"}, reg).askDriver(t.Context())
		if driver != tc.want || (err != nil) != (tc.err != nil) {
			t.Errorf("%s: %q, %v", name, driver, err)
		}
		if n, err := testutil.GatherAndCount(reg, "kubelet_cri_losing_support"); err != nil || n != tc.losing {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}

// run runs the cgroups for as long as work lasts.
func run(t *testing.T, c *Cgroups, work func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	work()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCgroupsStandOnceTheRuntimeIsReadyAndFollowWhatTheNodeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.up, b.driver = false, cgroup.Systemd
		c := b.cgroups(Config{Root: "/", EnforcePods: true, ReservedMilliCPU: 1000}, prometheus.NewRegistry())
		run(t, c, func() {
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(b.made) != 0 {
				t.Error("made before the runtime was ready")
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.ParentOf(short, nil); err == nil || !strings.Contains(err.Error(), "wait for the node's cgroups") {
				t.Errorf("who asks before is told %v", err)
			}
			if uids, err := c.List(); uids != nil || err != nil {
				t.Errorf("before there are %v, %v", uids, err)
			}
			b.change(func() { b.up = true })
			c.Check()
			synctest.Wait()
			if parent, err := c.ParentOf(t.Context(), nil); parent != "parent" || err != nil {
				t.Errorf("afterwards %q, %v", parent, err)
			}
			c.Check() // nothing has changed
			time.Sleep(time.Second)
			synctest.Wait()
			b.change(func() { b.capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")} })
			c.Check()
			time.Sleep(time.Second)
			synctest.Wait()
			var got []int64
			for _, l := range b.limits {
				got = append(got, l.MilliCPU)
			}
			if !slices.Equal(got, []int64{3000, 7000}) || len(b.made) != 1 || b.made[0].Driver != cgroup.Systemd || !slices.Equal(b.rows, []string{"/kubepods.slice"}) {
				t.Errorf("limits %v, made %+v, shown %q", got, b.made, b.rows)
			}
			if b.said["cgroups"] != "ready" || len(b.events) != 2 {
				t.Errorf("said %q, events %q", b.said, b.events)
			}
		})
	})
}

func TestLimitsThatCannotBeSetAreTriedAgainAndSaidOnce(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		stand bool
	}{
		"the pods' own":       {errors.New("read-only file system"), false},
		"those of the system": {fmt.Errorf("%w: no such cgroup", cgroup.ErrReserved), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.driver, b.setup = cgroup.Cgroupfs, c.err
				cgroups := b.cgroups(Config{Root: "/", EnforcePods: true}, prometheus.NewRegistry())
				run(t, cgroups, func() {
					time.Sleep(time.Minute)
					synctest.Wait()
					short, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := cgroups.Stand(short); (err == nil) != c.stand {
						t.Errorf("whether they stand: %v", err)
					}
					if len(b.events) != 1 || !strings.Contains(b.events[0], "FailedNodeAllocatableEnforcement") || !strings.Contains(b.said["cgroups"], "check cgroupRoot") {
						t.Errorf("events %q, health %q", b.events, b.said["cgroups"])
					}
					b.change(func() { b.setup = nil })
					time.Sleep(time.Minute) // tried again by itself
					synctest.Wait()
					if err := cgroups.Stand(t.Context()); err != nil || b.said["cgroups"] != "ready" {
						t.Errorf("in the end %v, health %q", err, b.said["cgroups"])
					}
				})
			})
		})
	}
}

func TestWhatIsLeftToAClassFollowsThePodsAndIsTriedAgainWhileMoreIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, reg, percent := newBench(), prometheus.NewRegistry(), int64(100)
		b.driver, b.capacity = cgroup.Cgroupfs, v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
		c := b.cgroups(Config{Root: "/", EnforcePods: true, QOSReserved: &percent, MemoryQoS: resources.MemoryQoS{On: true, Tiered: true}}, reg)
		run(t, c, func() {
			c.Check()
			synctest.Wait()
			if len(b.limits) != 1 || b.limits[0].Tiers != nil {
				t.Fatalf("before the pods are known: %+v", b.limits)
			}
			b.change(func() {
				b.allKnown, b.guaranteed, b.burstable, b.setup = true, 100<<20, 10<<20, fmt.Errorf("%w: besteffort", cgroup.ErrInUse)
			})
			c.Check()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(b.limits) != 1 || b.said["cgroups"] != "ready" {
				t.Errorf("while more is in use: %+v, %q", b.limits, b.said)
			}
			b.change(func() { b.setup = nil })
			time.Sleep(time.Minute) // tried again by itself
			synctest.Wait()
			if len(b.limits) != 2 || b.limits[1].Tiers.Burstable != 924<<20 || b.limits[1].Tiers.BestEffort != 914<<20 {
				t.Errorf("when less is: %+v", b.limits)
			}
			b.change(func() { b.guaranteed = 0 })
			c.Check()
			time.Sleep(time.Second)
			synctest.Wait()
			if len(b.limits) != 3 || b.limits[2].Tiers.Burstable != 1<<30 {
				t.Errorf("when a pod has ended: %+v", b.limits)
			}
			if len(b.events) != 1 {
				t.Errorf("that pods come and go is no event: %q", b.events)
			}
			if got, err := testutil.GatherAndCount(reg, "kubelet_memory_qos_node_memory_min_bytes", "kubelet_memory_qos_node_memory_low_bytes"); err != nil || got != 2 {
				t.Errorf("%d series, %v", got, err)
			}
		})
	})
}

// The limits that were tried are below those of before: who goes by those would leave a
// class with what it used then.
func TestLimitsThatWereThereBeforeMoreWasInUseAreSetAgain(t *testing.T) {
	for name, failure := range map[string]error{"more is in use": cgroup.ErrInUse, "half of it was written": errors.New("read-only file system")} {
		synctest.Test(t, func(t *testing.T) {
			b, percent := newBench(), int64(100)
			b.driver, b.capacity, b.allKnown = cgroup.Cgroupfs, v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, true
			c := b.cgroups(Config{Root: "/", QOSReserved: &percent}, prometheus.NewRegistry())
			run(t, c, func() {
				c.Check()
				synctest.Wait()
				b.change(func() { b.guaranteed, b.setup = 900<<20, failure })
				c.Check()
				time.Sleep(time.Second)
				b.change(func() { b.guaranteed, b.setup = 0, nil })
				c.Check()
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(b.limits) != 2 || b.limits[1].Tiers.Burstable != 1<<30 {
					t.Errorf("%s: %+v", name, b.limits)
				}
			})
		})
	}
}

func TestWhereNothingIsLeftForPodsTheyAreNotWithoutALimit(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		refuse string
	}{
		"all memory":             {Config{EnforcePods: true, ReservedMemoryBytes: 1000}, `memory: 1000 of 1000 bytes are reserved`},
		"more processes":         {Config{EnforcePods: true, ReservedPIDs: 1 << 40}, "pid: 1099511627776 of "},
		"all memory, no limit":   {Config{ReservedMemoryBytes: 1000}, ""},
		"all memory but a byte":  {Config{EnforcePods: true, ReservedMemoryBytes: 999}, ""},
		"all processors":         {Config{EnforcePods: true, ReservedMilliCPU: 4000}, ""},
		"more processors, asked": {Config{EnforcePods: true, ReservedMilliCPU: 5000}, ""},
	} {
		b := newBench()
		cgroups := b.cgroups(c.cfg, prometheus.NewRegistry())
		stand := cgroups.setUp(t.Context())
		if c.refuse == "" {
			if !stand || len(b.limits) != 1 || b.limits[0].MilliCPU < 1 {
				t.Errorf("%s: stand %v, limits %+v, said %v", name, stand, b.limits, b.said)
			}
			continue
		}
		mend := "lower kubeReserved or systemReserved"
		if cgroups.setUp(t.Context()) || stand || len(b.limits) > 0 || !strings.Contains(b.said["cgroups"], c.refuse) || !strings.Contains(b.said["cgroups"], mend) {
			t.Errorf("%s: stand %v, limits %+v, said %v", name, stand, b.limits, b.said)
		}
		if len(b.events) != 1 || !strings.Contains(b.events[0], "FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits") || !strings.Contains(b.events[0], c.refuse) {
			t.Errorf("%s: events %q", name, b.events)
		}
	}
}
