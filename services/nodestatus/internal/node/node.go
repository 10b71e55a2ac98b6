package node

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxNames is how many names of an image are listed.
const maxNames = 5

// New returns the Node to register, with the status that facts give, and what
// happens to it by being registered.
func New(cfg Config, facts Facts, now time.Time) (*v1.Node, []Event) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: cfg.Name, Labels: cfg.DefaultLabels(), Annotations: cfg.annotations()},
		Spec:       v1.NodeSpec{ProviderID: cfg.ProviderID, Taints: slices.Clone(cfg.Taints)},
	}
	maps.Copy(node.Labels, cfg.Labels)
	if cfg.ExternalCloud && !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == uninitialized }) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: uninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	return Update(cfg, facts, node, now)
}

func (c Config) annotations() map[string]string {
	out := map[string]string{}
	if !c.NoController {
		out[controllerManaged] = "true"
	}
	// An unspecified address names a family only: no machine of a cloud has it.
	if ip, err := netip.ParseAddr(c.NodeIP); c.ExternalCloud && c.NodeIP != "" && (err != nil || !ip.IsUnspecified()) {
		out[providedNodeIP] = c.NodeIP
	}
	return out
}

// Reconcile returns a Node that was registered before, with the labels and
// annotations that every Node of ours has, and whether that changed it.
func Reconcile(cfg Config, old *v1.Node) (node *v1.Node, changed bool) {
	node = old.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Labels, cfg.DefaultLabels())
	for _, name := range slices.Collect(maps.Keys(cfg.DefaultLabels())) {
		if value, set := cfg.Labels[name]; set {
			node.Labels[name] = value
		}
	}
	maps.Copy(node.Annotations, cfg.annotations())
	if cfg.NoController {
		delete(node.Annotations, controllerManaged)
	}
	return node, !maps.Equal(node.Labels, old.Labels) || !maps.Equal(node.Annotations, old.Annotations)
}

// Join returns a Node that was registered before as it is when its agent starts: with
// what Reconcile gives it, and where it stands and what it is, as far as that is
// configured. Later that may be the cloud's to say.
func Join(cfg Config, old *v1.Node) (node *v1.Node, changed bool) {
	node, changed = Reconcile(cfg, old)
	for _, name := range []string{
		v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
		v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	} {
		if value := cfg.Labels[name]; value != "" && node.Labels[name] != value {
			node.Labels[name], changed = value, true
		}
	}
	return node, changed
}

// Update returns the Node with the status that facts give, and what happened
// to it by that.
func Update(cfg Config, facts Facts, old *v1.Node, now time.Time) (*v1.Node, []Event) {
	node := old.DeepCopy()
	s := &node.Status
	var events []Event
	if m := facts.Machine; m != nil {
		rebooted, boot := s.NodeInfo.BootID != "" && s.NodeInfo.BootID != m.BootID, m.BootID
		if rebooted && awaitsDevices(facts, s.Capacity) {
			rebooted, boot = false, s.NodeInfo.BootID // That it was is found again.
		}
		s.Capacity = capacity(cfg, m, s.Capacity)
		withoutDevices(s.Capacity, facts.Devices, rebooted)
		s.Allocatable = allocatable(reserved(cfg, s.Capacity), s.Capacity)
		if rebooted {
			events = append(events, Event{v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", cfg.Name, m.BootID)})
		}
		s.NodeInfo.MachineID, s.NodeInfo.SystemUUID, s.NodeInfo.BootID = m.MachineID, m.SystemUUID, boot
		s.NodeInfo.Swap = nil
		if m.SwapBytes > 0 {
			swap := int64(m.SwapBytes) //nolint:gosec // No machine has 8 EiB.
			s.NodeInfo.Swap = &v1.NodeSwapStatus{Capacity: &swap}
		}
	}
	if facts.Host.KernelVersion != "" {
		s.NodeInfo.KernelVersion, s.NodeInfo.OSImage = facts.Host.KernelVersion, facts.Host.OSImage
	}
	s.NodeInfo.KubeletVersion, s.NodeInfo.KubeProxyVersion = cfg.KubeletVersion, ""
	s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	s.DaemonEndpoints.KubeletEndpoint.Port = cfg.Port
	s.DeclaredFeatures = slices.Clone(cfg.DeclaredFeatures)
	// What a cloud controller wrote there is its own; ours are for the time before.
	if len(facts.Addresses) > 0 && (!cfg.ExternalCloud || len(s.Addresses) == 0) {
		s.Addresses = slices.Clone(facts.Addresses)
	}
	setRuntime(s, facts.Runtime)
	if facts.Images != nil {
		s.Images = images(facts.Images, int(cfg.MaxImages))
	}
	if facts.VolumesInUse != nil {
		s.VolumesInUse = nil
		for _, name := range facts.VolumesInUse {
			s.VolumesInUse = append(s.VolumesInUse, v1.UniqueVolumeName(name))
		}
	}
	return node, append(events, setConditions(cfg, node, facts, now)...)
}

func setRuntime(s *v1.NodeStatus, r Runtime) {
	if !r.Known {
		return
	}
	s.NodeInfo.ContainerRuntimeVersion = r.Name + "://" + r.Version
	s.RuntimeHandlers = nil
	for _, h := range r.Handlers {
		s.RuntimeHandlers = append(s.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: &h.UserNamespaces},
		})
	}
	slices.SortFunc(s.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &r.SupplementalGroupsPolicy}
}

// images lists images, largest first; limit -1 is all.
func images(in []Image, limit int) []v1.ContainerImage {
	sorted := slices.Clone(in)
	slices.SortFunc(sorted, func(a, b Image) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), cmp.Compare(b.ID, a.ID))
	})
	if limit >= 0 && len(sorted) > limit {
		sorted = sorted[:limit]
	}
	out := make([]v1.ContainerImage, 0, len(sorted))
	for _, i := range sorted {
		names := slices.Concat(i.Digests, i.Tags)
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(i.SizeBytes)}) //nolint:gosec // No image has 8 EiB.
	}
	return out
}

// Same reports whether two statuses say the same, heartbeats aside.
func Same(a, b *v1.NodeStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1.NodeStatus{x, y} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}
