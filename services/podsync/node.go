package podsync

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/nodeaddr"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
	"github.com/polylet/polylet/services/podsync/internal/server"
)

// prepare makes the directories that podsync's parts lie in.
func (s *Service) prepare() error {
	for dir, mode := range map[string]os.FileMode{
		filepath.Join(s.cfg.RootDir, "pods"):                        0o750,
		filepath.Join(s.cfg.RootDir, "polylet"):                     0o750,
		s.cfg.PodLogsDir:                                            0o755,
		filepath.Join(filepath.Dir(s.cfg.PodLogsDir), "containers"): 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// shareRoot lets containers see what is mounted below the root directory, and this
// process what they mount there: volumes with mount propagation, and CSI drivers, need
// that. Without it all else goes on.
func (s *Service) shareRoot(log logr.Logger) {
	changed, err := s.deps.Mounter.Share(s.cfg.RootDir)
	if err != nil {
		err = fmt.Errorf("the root directory %s is on no shared mount: %w; volumes with mountPropagation and CSI drivers do not work: run mount --make-rshared on its mount on the host, and keep podsync in the host's mount namespace, or bind the directory into its container with rshared", s.cfg.RootDir, err)
		log.Error(err, "Mount propagation does not work; pods without it are not affected")
		s.deps.Health.Set("mount propagation", false, err.Error())
		return
	}
	if changed {
		log.Info("Made the root directory a shared mount", "dir", s.cfg.RootDir)
	}
	s.deps.Health.Set("mount propagation", true, "")
}

// runtimeSink hands on what the observer sees, and looks at the runtime itself.
type runtimeSink struct{ s *Service }

func (r runtimeSink) Observe(uid types.UID, o podstate.Observed) { r.s.registry.Observe(uid, o) }
func (r runtimeSink) RuntimeSeen()                               { r.s.registry.RuntimeSeen() }
func (r runtimeSink) RuntimeChanged(now observe.Runtime) {
	kick(r.s.nodeKick)
	r.s.registry.RuntimeChanged(now)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// objectChanged passes on that an API object changed. It returns at once.
func (s *Service) objectChanged(key objects.Key, holders []types.UID) {
	if key.Kind == objects.Node {
		kick(s.nodeKick)
		return
	}
	s.volumes.ObjectChanged(holders)
	s.registry.ObjectsChanged(holders)
}

// followNode keeps what is known of the node itself current: its object, and
// what the runtime and the cgroups have to be told of it. It never waits for the
// apiserver, which may be one of the pods that wait for the cgroups.
func (s *Service) followNode(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	told, refused := "", ""
	for ctx.Err() == nil {
		again := false
		if node := s.objects.KnownNode(); node != nil && s.storeNode(node) {
			s.mirrors.NodeChanged()
			s.registry.Recheck()
		}
		if s.observer.Runtime().Ready {
			again = !s.setUpCgroups(ctx)
			if cidr := s.wantedCIDR(); cidr != "" && cidr != told {
				if err := s.runtime.UpdatePodCIDR(ctx, cidr); err != nil {
					if cidr != refused {
						log.Error(err, "Could not tell the runtime the pod network; trying again by itself", "podCIDR", cidr)
					}
					again, refused = true, cidr
				} else {
					told, refused = cidr, ""
				}
			}
		}
		waitFor(ctx, s.nodeKick, retry, again)
	}
	return nil
}

// followAddresses finds the host's addresses, and again when those that the Node
// object shows have changed: whoever writes them has seen it.
func (s *Service) followAddresses(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	var shown []v1.NodeAddress // by the object when they were found last
	for ctx.Err() == nil {
		again := false
		if s.deps.HostIPs == nil {
			var now []v1.NodeAddress
			node := s.node.Load()
			if node != nil {
				now = node.Status.Addresses
			}
			if s.addresses.Load() == nil || !slices.Equal(now, shown) {
				again = !s.findAddresses(ctx, now)
				if !again {
					shown = now
				}
			}
			known := !again && (node != nil || s.deps.Client == nil) && s.addressesKnown.CompareAndSwap(false, true)
			if s.addressesSought.CompareAndSwap(false, true) || known {
				s.registry.Recheck()
			}
		}
		waitFor(ctx, s.addressKick, retry, again)
	}
	return nil
}

// waitFor waits for a kick, and if it is to be tried again not longer than retry says.
func waitFor(ctx context.Context, kicked <-chan struct{}, retry *backoff.Backoff, again bool) {
	var later <-chan time.Time
	if again {
		later = time.After(retry.Next())
	} else {
		retry.Reset()
	}
	select {
	case <-ctx.Done():
	case <-kicked:
	case <-later:
	}
}

// findAddresses finds the host's addresses and says whether it did; existing
// are those that the Node object shows.
func (s *Service) findAddresses(ctx context.Context, existing []v1.NodeAddress) bool {
	found, err := nodeaddr.Find(ctx, nodeaddr.Config{
		NodeName: s.cfg.NodeName, NodeIP: s.cfg.NodeIP, ExternalCloud: s.cfg.ExternalCloud,
	}, nodeaddr.System(), existing)
	if err != nil {
		s.deps.Health.Set("node address", false, err.Error())
		if ips := hostAddresses(existing); len(ips) > 0 && s.addresses.CompareAndSwap(nil, &ips) {
			s.registry.Recheck() // what the Node says meanwhile
		}
		return false
	}
	ips := hostAddresses(found)
	s.deps.Health.Set("node address", len(ips) > 0, "the node has no address yet: with --cloud-provider=external the cloud's controller writes it into the Node; --node-ip sets one")
	if old := s.addresses.Swap(&ips); old == nil || !slices.Equal(*old, ips) {
		s.registry.Recheck()
	}
	return true
}

// hostAddresses are the addresses of a node that its pods show as the host's, and
// those on its network as their own: internal ones before external ones, the first
// of all and the first of the other family. The API takes no more.
func hostAddresses(found []v1.NodeAddress) []string {
	var ips []string
	var first netip.Addr
	for _, of := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range found {
			ip, err := netip.ParseAddr(a.Address)
			switch {
			case a.Type != of || err != nil:
			case len(ips) == 0:
				ips, first = append(ips, a.Address), ip.Unmap()
			case len(ips) == 1 && ip.Unmap().Is4() != first.Is4():
				ips = append(ips, a.Address)
			}
		}
	}
	return ips
}

func (s *Service) hostIPs() []string {
	if s.deps.HostIPs != nil {
		return s.deps.HostIPs()
	}
	if ips := s.addresses.Load(); ips != nil {
		return *ips
	}
	return nil
}

func (s *Service) wantedCIDR() string {
	if node := s.node.Load(); node != nil {
		return node.Spec.PodCIDR
	}
	return s.cfg.PodCIDR
}

// nodeFacts is what the planner needs to know of the node.
func (s *Service) nodeFacts() worker.Node {
	r := s.observer.Runtime()
	return worker.Node{
		IPs: s.hostIPs(), IPsSought: s.addressesSought.Load(), IPsKnown: s.addressesKnown.Load(), RuntimeName: r.Name, NetworkReady: r.NetworkReady, NetworkMessage: r.NetworkMessage,
		MaxContainerRestartPeriod: s.cfg.MaxContainerRestartPeriod, FirstContainerRestartPeriod: s.cfg.FirstContainerRestartPeriod,
		NoRestartRules: s.cfg.NoRestartRules, NoRestartAll: s.cfg.NoRestartAll, NoReadyToStart: s.cfg.NoReadyToStart,
		Quotas:           resources.Quotas{On: s.cfg.CPUCFSQuota, PeriodMicros: s.cfg.CPUCFSQuotaPeriod.Microseconds()},
		NoPodLevelResize: s.cfg.Resize.NoPodLevel, RecursiveReadOnly: canReadOnly(r.Status),
		DeadContainers: s.cfg.DeadContainers, DeadContainerTTL: s.cfg.DeadContainerTTL,
	}
}

// canReadOnly says whether the handler of pods without a runtime class makes
// mounts recursively read-only.
func canReadOnly(st *runtimeapi.StatusResponse) bool {
	for _, h := range st.GetRuntimeHandlers() {
		if h.GetName() == "" {
			return h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}

// onDisk lists pods that left something outside of the runtime.
func (s *Service) onDisk(ctx context.Context) []types.UID {
	log := logr.FromContextOrDiscard(ctx)
	uids, err := s.volumes.OnDisk()
	if err != nil {
		log.Error(err, "Could not list the directories of pods; what is left of pods that are gone stays")
	}
	logs, err := s.logsOnDisk()
	if err != nil {
		log.Error(err, "Could not list the logs of pods; what is left of pods that are gone stays")
	}
	for _, uid := range logs {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	if late, ok := s.cgroups.(*cgroups); ok {
		if _, err := late.get(ctx); err != nil {
			return uids
		}
	}
	more, err := s.cgroups.List()
	if err != nil {
		log.Error(err, "Could not list the cgroups of pods; what is left of pods that are gone stays")
	}
	for _, uid := range more {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// capacity is the machine's, or the Node object's when there is one.
func (s *Service) capacity() v1.ResourceList {
	if node := s.node.Load(); node != nil && len(node.Status.Capacity) > 0 {
		return node.Status.Capacity
	}
	list := v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(s.cfg.MaxPods, resource.DecimalSI),
	}
	if total := memoryTotal(); total > 0 {
		list[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	}
	return list
}

// allocatable is what pods may use.
func (s *Service) allocatable() v1.ResourceList {
	if node := s.node.Load(); node != nil && len(node.Status.Allocatable) > 0 {
		return node.Status.Allocatable
	}
	list := s.capacity().DeepCopy()
	less := func(name v1.ResourceName, q *resource.Quantity) {
		if have, ok := list[name]; ok {
			have.Sub(*q)
			list[name] = have
		}
	}
	less(v1.ResourceCPU, resource.NewMilliQuantity(s.cfg.ReservedMilliCPU, resource.DecimalSI))
	less(v1.ResourceMemory, resource.NewQuantity(s.cfg.ReservedMemoryBytes, resource.BinarySI))
	return list
}

// handlers are the runtime's, with what they can do.
func (s *Service) handlers() map[string]*runtimeapi.RuntimeHandlerFeatures {
	list := s.observer.Runtime().Status.GetRuntimeHandlers()
	if len(list) == 0 {
		return nil
	}
	out := map[string]*runtimeapi.RuntimeHandlerFeatures{}
	for _, h := range list {
		out[h.GetName()] = h.GetFeatures()
	}
	return out
}

func (s *Service) runtimeState() server.RuntimeState {
	r := s.observer.Runtime()
	return server.RuntimeState{
		Version: r.Version, Status: r.Status, Err: r.Err, LastOK: r.LastOK, ContainerEvents: r.Events,
		LastRelist: r.LastRelist, SourcesReady: s.registry.SourcesReady(),
	}
}

// SyncLoop says that the loop that looks at the runtime has not gone round for
// longer than longest; nil while it goes round, and before it runs.
func (s *Service) SyncLoop(longest time.Duration) error {
	r := s.observer.Runtime()
	return goesRound(r.Began, r.LastRelist, time.Now(), longest)
}

func goesRound(began, last, now time.Time, longest time.Duration) error {
	const took, ask = "sync Loop took longer than expected: the runtime's containers", "; polylet status says whether the runtime answers"
	switch {
	case last.IsZero() && !began.IsZero() && now.Sub(began) > longest:
		return fmt.Errorf("%s could not be listed since the start %s ago%s", took, now.Sub(began).Round(time.Second), ask)
	case !last.IsZero() && now.Sub(last) > longest:
		return fmt.Errorf("%s were last listed %s ago%s", took, now.Sub(last).Round(time.Second), ask)
	}
	return nil
}
