// Package nodecgroups makes the cgroups of the node once the runtime has said how
// it names them, and brings their limits up to date whenever what the node has
// changes.
//
// It owns when they are made, and what all pods together may use. Whoever needs
// the cgroup of a pod waits here until they stand. It must never make a cgroup
// itself: package cgroup does.
package nodecgroups

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// Config says what the cgroups are like.
type Config struct {
	// Root is the cgroup below which kubepods lies, e.g. "/".
	Root string
	// Driver is taken where the runtime does not say which it has.
	Driver cgroup.Driver
	// PodPidsLimit bounds the processes of each pod; none when not positive.
	PodPidsLimit int64
	// CPUCFSQuota sets cpu quotas from limits; the period is 100 ms when zero.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// EnforcePods limits all pods together to what is allocatable, Enforced the
	// cgroups of others to what is reserved for them.
	EnforcePods bool
	Enforced    []cgroup.Reserved
	// ReservedMilliCPU, ReservedMemoryBytes and ReservedPIDs are kept from pods.
	ReservedMilliCPU, ReservedMemoryBytes, ReservedPIDs int64
	// QOSReserved is how many percent of the memory that pods have asked for those of
	// worse classes may not use; nil bounds no class.
	QOSReserved *int64
	// MemoryQoS protects memory, on cgroup v2.
	MemoryQoS resources.MemoryQoS
}

// Runtime is asked how it names cgroups; *cri.Client has it.
type Runtime interface {
	// CgroupDriver is empty when the runtime names none, and known false when it
	// does not know the question.
	CgroupDriver(ctx context.Context) (driver cgroup.Driver, known bool, err error)
}

// Events records events on the node; *event.Recorder has it.
type Events interface {
	Node(eventType, reason, message string)
}

// Rows are what other services are told; *podcache.Table has it.
type Rows interface {
	SetPodsCgroup(path string)
}

// Deps are what Cgroups are given; all but Asked, Metrics and Make must be set.
type Deps struct {
	Runtime Runtime
	// Ready says whether the runtime answers; it must not block.
	Ready func() bool
	// Capacity is the node's; it must not block.
	Capacity func() v1.ResourceList
	// Asked is what the guaranteed and the burstable pods of the node ask for of memory;
	// known is false while not all pods are. It must not block. It is asked with QOSReserved
	// or MemoryQoS only.
	Asked   func() (guaranteed, burstable int64, known bool)
	Rows    Rows
	Events  Events
	Health  health.Reporter
	Metrics *metrics.Metrics
	// Make makes the Manager; cgroup.New when nil.
	Make func(cgroup.Config) (cgroup.Manager, error)
}

// Cgroups are the node's. It is a cgroup.Manager whose methods wait until the
// cgroups stand. Safe for concurrent use.
type Cgroups struct {
	cfg  Config
	deps Deps
	wake wake.Signal

	ready chan struct{}
	once  sync.Once
	stand cgroup.Manager // set when ready is closed

	// Of Run alone: the Manager that was made, the limits that were applied last,
	// and the failure that was told last.
	made     cgroup.Manager
	driver   cgroup.Driver
	enforced *cgroup.Limits
	failed   string
	// said are the limits that were told last, and tight which class uses more than is
	// left to it.
	said  *cgroup.Limits
	tight string
}

// New returns Cgroups that do not stand yet.
func New(cfg Config, deps Deps) *Cgroups {
	if deps.Make == nil {
		deps.Make = func(cfg cgroup.Config) (cgroup.Manager, error) { return cgroup.New(cfg) }
	}
	return &Cgroups{cfg: cfg, deps: deps, wake: wake.New(), ready: make(chan struct{})}
}

// Check has Run look again whether the cgroups are as they should be, since the
// runtime or the node has changed. It returns at once.
func (c *Cgroups) Check() { c.wake.Set() }

// Run makes the cgroups when the runtime answers, and keeps their limits current
// until ctx is done.
func (c *Cgroups) Run(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	for ctx.Err() == nil {
		again := c.deps.Ready() && !c.setUp(ctx)
		c.wake.Wait(ctx, retry, again)
	}
	return nil
}

// setUp makes the node's cgroups with the driver that the runtime names, and
// brings their limits up to date. It says whether they stand as they should.
func (c *Cgroups) setUp(ctx context.Context) bool {
	limits, err := c.limits()
	if err != nil {
		c.fails(err, err.Error())
		return false
	}
	if c.enforced != nil && reflect.DeepEqual(*c.enforced, limits) {
		return true
	}
	m, driver, err := c.manager(ctx)
	if err == nil {
		c.enforced = nil // Some of the new ones may stand though it fails.
		err = m.Setup(ctx, limits)
	}
	if errors.Is(err, cgroup.ErrInUse) && !errors.Is(err, cgroup.ErrReserved) {
		c.inUse(ctx, err, limits)
		c.set(m)
		return false // What is in use may become less, and nothing tells.
	}
	if err != nil {
		c.fails(err, fmt.Sprintf("%v; check cgroupRoot, cgroupDriver and enforceNodeAllocatable", err))
		if errors.Is(err, cgroup.ErrReserved) { // the pods' own cgroups stand
			c.set(m)
		}
		return false
	}
	klog.FromContext(ctx).Info("Cgroups stand", "cgroup", c.cfg.Root, "cgroupDriver", driver, "limits", fmt.Sprintf("%+v", limits))
	c.deps.Health.Set("cgroups", true, "")
	c.enforced, c.failed, c.tight = &limits, "", ""
	c.say(limits)
	c.set(m)
	return true
}

// fails says that the limits cannot be set, and records it once.
func (c *Cgroups) fails(err error, message string) {
	c.deps.Health.Set("cgroups", false, message)
	if c.failed != message && (c.cfg.EnforcePods || len(c.cfg.Enforced) > 0) {
		c.failed = message
		c.deps.Events.Node(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", c.cfg.Root, err))
	}
}

// inUse notes that pods use more than is left to them, once.
func (c *Cgroups) inUse(ctx context.Context, err error, limits cgroup.Limits) {
	c.deps.Health.Set("cgroups", true, "")
	c.failed = ""
	if c.tight == "" {
		klog.FromContext(ctx).Info("Pods use more memory than enforceNodeAllocatable or qosReserved leaves to them; they get no more, and it is tried again", "err", err)
	}
	c.tight = err.Error()
	c.say(limits)
}

// say records what is limited now, where that changed.
func (c *Cgroups) say(limits cgroup.Limits) {
	tiers := limits.Tiers
	limits.Tiers = nil // They change with each pod.
	if c.said == nil || !reflect.DeepEqual(*c.said, limits) {
		c.said = &limits
		c.sayEnforced(limits)
	}
	if c.cfg.MemoryQoS.On && tiers != nil {
		c.deps.Metrics.MemoryProtected(tiers.Min-tiers.Low, tiers.Low)
	}
}

// manager is the Manager that was made, or a new one.
func (c *Cgroups) manager(ctx context.Context) (cgroup.Manager, cgroup.Driver, error) {
	if c.made != nil {
		return c.made, c.driver, nil
	}
	driver, err := c.askDriver(ctx)
	if err != nil {
		return nil, c.cfg.Driver, err
	}
	c.driver = driver
	m, err := c.deps.Make(cgroup.Config{
		Root: c.cfg.Root, Driver: driver, EnforcePods: c.cfg.EnforcePods, PodPidsLimit: c.cfg.PodPidsLimit,
		CPUCFSQuota: c.cfg.CPUCFSQuota, CPUCFSQuotaPeriodMicros: uint64(c.cfg.CPUCFSQuotaPeriod.Microseconds()), MemoryQoS: c.cfg.MemoryQoS,
	})
	if err != nil {
		return nil, driver, err
	}
	c.made = cgroup.Counted(m, c.deps.Metrics)
	c.deps.Rows.SetPodsCgroup(cgroup.PodsPath(c.cfg.Root, driver))
	return c.made, driver, nil
}

// askDriver is the runtime's cgroup driver; the configured one where the runtime
// does not know the question, which the kubelet of 1.37 will not put up with.
func (c *Cgroups) askDriver(ctx context.Context) (cgroup.Driver, error) {
	driver, known, err := c.deps.Runtime.CgroupDriver(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	case !known:
		c.deps.Metrics.LosesSupport("1.37.0")
		klog.FromContext(ctx).Info("The runtime does not say which cgroup driver it has, and should be updated; using cgroupDriver of the configuration", "cgroupDriver", c.cfg.Driver)
	case driver != "":
		return driver, nil
	}
	return c.cfg.Driver, nil
}

// sayEnforced records what is limited now.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func (c *Cgroups) sayEnforced(limits cgroup.Limits) {
	if c.cfg.EnforcePods {
		c.deps.Events.Node(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
	for _, r := range limits.Reserved {
		whose, _, _ := strings.Cut(r.Kind, "-")
		c.deps.Events.Node(v1.EventTypeNormal, "NodeAllocatableEnforced", fmt.Sprintf("Updated limits on %s reserved cgroup %s", whose, r.Cgroup))
	}
}
