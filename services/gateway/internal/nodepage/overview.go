package nodepage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// overview is what the page's front shows.
type overview struct {
	Time     time.Time `json:"time"`
	Node     nodeInfo  `json:"node"`
	Services []process `json:"services"`
	Pods     []podInfo `json:"pods"`
	Events   []event   `json:"events"`
	// Problems says which parts are missing, and why.
	Problems []string `json:"problems"`
}

type nodeInfo struct {
	Name       string            `json:"name"`
	Registered bool              `json:"registered"`
	Kubelet    string            `json:"kubelet,omitempty"`
	OS         string            `json:"os,omitempty"`
	Kernel     string            `json:"kernel,omitempty"`
	Runtime    string            `json:"runtime,omitempty"`
	Conditions []condition       `json:"conditions"`
	Capacity   map[string]string `json:"capacity,omitempty"`
	CPUs       float64           `json:"cpus,omitempty"`
	Memory     int64             `json:"memory,omitempty"`
	Taints     []string          `json:"taints,omitempty"`
}

type condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

type process struct {
	Name    string     `json:"name"`
	Up      bool       `json:"up"`
	Version string     `json:"version,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Lacks is what it waits for, or why it does not answer.
	Lacks []string `json:"lacks,omitempty"`
}

type event struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Container string    `json:"container,omitempty"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Count     uint32    `json:"count"`
}

// askOverview asks all at once; what does not answer becomes a problem.
func (p *page) askOverview(ctx context.Context) any {
	out := overview{Time: time.Now(), Node: nodeInfo{Name: p.cfg.NodeName}}
	var pods *podsapi.ListPodsResponse
	var waits *podsyncv1.ListWaitsResponse
	var mu sync.Mutex
	var group sync.WaitGroup
	ask := func(who string, call func() error) {
		group.Go(func() {
			if err := call(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				out.Problems = append(out.Problems, who+": "+httperror.Message(err))
			}
		})
	}
	ask("pods", func() (err error) { pods, err = p.pods.ListPods(ctx, &podsapi.ListPodsRequest{}); return err })
	ask("waits", func() (err error) { waits, err = p.podsync.ListWaits(ctx, &podsyncv1.ListWaitsRequest{}); return err })
	var ofPods *podsyncv1.ListRecentEventsResponse
	var ofNode *nodestatusv1.ListRecentEventsResponse
	ask("events", func() (err error) {
		ofPods, err = p.podsync.ListRecentEvents(ctx, &podsyncv1.ListRecentEventsRequest{})
		return err
	})
	ask("events of the node", func() (err error) {
		ofNode, err = p.node.ListRecentEvents(ctx, &nodestatusv1.ListRecentEventsRequest{})
		return err
	})
	ask("node", func() error {
		resp, err := p.node.GetNode(ctx, &nodestatusv1.GetNodeRequest{})
		if err != nil {
			return err
		}
		return out.Node.fill(resp)
	})
	group.Go(func() { out.Services = p.askServices(ctx) })
	group.Wait()
	out.Pods, out.Events = podsOf(pods, waits), eventsOf(p.cfg.NodeName, ofPods, ofNode)
	slices.Sort(out.Problems)
	return out
}

func (p *page) askServices(ctx context.Context) []process {
	names := slices.DeleteFunc(service.All(), func(name string) bool { return name == service.Gateway })
	out := make([]process, len(names), len(names)+1)
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			info, err := p.services[name].GetInfo(ctx, &commonv1.GetInfoRequest{})
			out[i] = processOf(name, info, err)
		})
	}
	group.Wait()
	return append(out, process{Name: service.Gateway, Up: true, Since: &p.began})
}

func processOf(name string, info *commonv1.GetInfoResponse, err error) process {
	if err != nil {
		return process{Name: name, Lacks: []string{httperror.Message(err)}}
	}
	s := process{Name: name, Up: true, Version: info.GetBuild().GetVersion(), Since: stamp(info.GetStartTime())}
	for _, d := range info.GetDependencies() {
		if !d.GetReady() {
			s.Lacks = append(s.Lacks, d.GetName()+": "+d.GetMessage())
		}
	}
	return s
}

func (n *nodeInfo) fill(resp *nodestatusv1.GetNodeResponse) error {
	var node v1.Node
	if err := node.Unmarshal(resp.GetNode()); err != nil {
		return err
	}
	st := node.Status
	n.Registered = resp.GetRegistered()
	n.Kubelet, n.OS, n.Kernel = st.NodeInfo.KubeletVersion, st.NodeInfo.OSImage, st.NodeInfo.KernelVersion
	n.Runtime = st.NodeInfo.ContainerRuntimeVersion
	n.CPUs, n.Memory = st.Capacity.Cpu().AsApproximateFloat64(), st.Capacity.Memory().Value()
	n.Capacity = map[string]string{}
	for name, q := range st.Capacity {
		n.Capacity[string(name)] = q.String()
	}
	for _, c := range st.Conditions {
		n.Conditions = append(n.Conditions, condition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
	}
	slices.SortFunc(n.Conditions, func(a, b condition) int {
		return cmp.Or(cmp.Compare(boolOrder(b.Type == "Ready"), boolOrder(a.Type == "Ready")), cmp.Compare(a.Type, b.Type))
	})
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, t.ToString())
	}
	return nil
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// eventsOf lists what podsync and nodestatus recorded, the newest first.
func eventsOf(nodeName string, ofPods *podsyncv1.ListRecentEventsResponse, ofNode *nodestatusv1.ListRecentEventsResponse) []event {
	out := []event{}
	for _, e := range slices.Backward(ofNode.GetEvents()) {
		out = append(out, event{
			Time: e.GetTime().AsTime(), Kind: "Node", Name: nodeName, Type: e.GetType(), Reason: e.GetReason(), Message: e.GetMessage(), Count: e.GetCount(),
		})
	}
	for _, e := range slices.Backward(ofPods.GetEvents()) {
		out = append(out, event{
			Time: e.GetTime().AsTime(), Kind: e.GetKind(), Namespace: e.GetNamespace(), Name: e.GetName(), Container: e.GetContainer(),
			Type: e.GetType(), Reason: e.GetReason(), Message: messageOf(e), Count: e.GetCount(),
		})
	}
	slices.SortStableFunc(out, func(a, b event) int { return b.Time.Compare(a.Time) })
	return out
}

// stamp is a proto's time; nil when it is unset.
func stamp(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}
