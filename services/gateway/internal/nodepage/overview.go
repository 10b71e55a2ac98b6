package nodepage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Overview is what the page's front shows.
type Overview struct {
	Time     time.Time `json:"time"`
	Node     Node      `json:"node"`
	Services []Process `json:"services"`
	Pods     []Pod     `json:"pods"`
	Events   []Event   `json:"events"`
	// Shortages is nil when it is not known what the node is short of: Problems says why.
	Shortages *Shortages `json:"shortages,omitempty"`
	// Problems says which parts are missing, and why.
	Problems []string `json:"problems"`
}

// Node is what is shown of the node.
type Node struct {
	Name       string            `json:"name"`
	Registered bool              `json:"registered"`
	Kubelet    string            `json:"kubelet,omitempty"`
	OS         string            `json:"os,omitempty"`
	Kernel     string            `json:"kernel,omitempty"`
	Runtime    string            `json:"runtime,omitempty"`
	Conditions []Condition       `json:"conditions"`
	Capacity   map[string]string `json:"capacity,omitempty"`
	CPUs       float64           `json:"cpus,omitempty"`
	Memory     int64             `json:"memory,omitempty"`
	Taints     []string          `json:"taints,omitempty"`
}

// Condition is one of a node or pod.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// Process is one of the five.
type Process struct {
	Name    string     `json:"name"`
	Up      bool       `json:"up"`
	Version string     `json:"version,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Lacks is what it waits for, or why it does not answer.
	Lacks []string `json:"lacks,omitempty"`
}

// Event is one of a pod or of the node.
type Event struct {
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
	out := Overview{Time: time.Now(), Node: Node{Name: p.cfg.NodeName}}
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
	var pods []v1.Pod
	var waits map[types.UID][]Wait
	var ofPods, ofNode []Event
	ask("pods", func() (err error) { pods, err = p.cfg.Peers.Pods(ctx); return err })
	ask("waits", func() (err error) { waits, err = p.cfg.Peers.Waits(ctx); return err })
	ask("events", func() (err error) { ofPods, err = p.cfg.Peers.PodEvents(ctx); return err })
	ask("events of the node", func() (err error) { ofNode, err = p.cfg.Peers.NodeEvents(ctx); return err })
	ask("what the node is short of", func() error {
		short, err := p.cfg.Peers.Shortages(ctx)
		if err == nil {
			out.Shortages = short.shownAt(out.Time)
		}
		return err
	})
	ask("node", func() error {
		node, registered, err := p.cfg.Peers.Node(ctx)
		if err == nil {
			out.Node.fill(node, registered)
		}
		return err
	})
	group.Go(func() { out.Services = p.askServices(ctx) })
	group.Wait()
	out.Pods, out.Events = podsOf(pods, waits), eventsOf(p.cfg.NodeName, ofPods, ofNode)
	slices.Sort(out.Problems)
	return out
}

func (p *page) askServices(ctx context.Context) []Process {
	names := slices.DeleteFunc(service.All(), func(name string) bool { return name == service.Gateway })
	out := make([]Process, len(names), len(names)+1)
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			var err error
			if out[i], err = p.cfg.Peers.Process(ctx, name); err != nil {
				out[i] = Process{Lacks: []string{httperror.Message(err)}}
			}
			out[i].Name = name
		})
	}
	group.Wait()
	return append(out, Process{Name: service.Gateway, Up: true, Since: &p.began})
}

func (n *Node) fill(node *v1.Node, registered bool) {
	st := node.Status
	n.Registered = registered
	n.Kubelet, n.OS, n.Kernel = st.NodeInfo.KubeletVersion, st.NodeInfo.OSImage, st.NodeInfo.KernelVersion
	n.Runtime = st.NodeInfo.ContainerRuntimeVersion
	n.CPUs, n.Memory = st.Capacity.Cpu().AsApproximateFloat64(), st.Capacity.Memory().Value()
	n.Capacity = map[string]string{}
	for name, q := range st.Capacity {
		n.Capacity[string(name)] = q.String()
	}
	for _, c := range st.Conditions {
		n.Conditions = append(n.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
	}
	slices.SortFunc(n.Conditions, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(boolOrder(b.Type == "Ready"), boolOrder(a.Type == "Ready")), cmp.Compare(a.Type, b.Type))
	})
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, t.ToString())
	}
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// eventsOf lists what podsync and nodestatus recorded, the newest first.
func eventsOf(nodeName string, ofPods, ofNode []Event) []Event {
	out := make([]Event, 0, len(ofNode)+len(ofPods))
	for _, e := range ofNode {
		e.Name = nodeName
		out = append(out, e)
	}
	out = append(out, ofPods...)
	slices.SortStableFunc(out, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return out
}
