package peer

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/nodepage"
)

// Page asks for what the node's page shows, over the same RPCs that the command line
// uses. See NewPage.
type Page struct {
	pods     podsapi.PodsClient
	podsync  podsyncv1.PodSyncServiceClient
	probes   probesv1.ProbesServiceClient
	stats    statsv1.StatsServiceClient
	node     nodestatusv1.NodeStatusServiceClient
	services map[string]commonv1.CommonServiceClient
}

var _ nodepage.Peers = (*Page)(nil)

// NewPage returns a Page over connections to the sockets of podsync, probes, stats and
// nodestatus.
func NewPage(podsync, probes, stats, nodestatus grpc.ClientConnInterface) *Page {
	return &Page{
		pods:    podsapi.NewPodsClient(podsync),
		podsync: podsyncv1.NewPodSyncServiceClient(podsync),
		probes:  probesv1.NewProbesServiceClient(probes),
		stats:   statsv1.NewStatsServiceClient(stats),
		node:    nodestatusv1.NewNodeStatusServiceClient(nodestatus),
		services: map[string]commonv1.CommonServiceClient{
			service.Podsync: commonv1.NewCommonServiceClient(podsync), service.Probes: commonv1.NewCommonServiceClient(probes),
			service.Stats: commonv1.NewCommonServiceClient(stats), service.Nodestatus: commonv1.NewCommonServiceClient(nodestatus),
		},
	}
}

// Pods implements nodepage.Peers.
func (p *Page) Pods(ctx context.Context) ([]v1.Pod, error) {
	resp, err := p.pods.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return nil, err
	}
	out := make([]v1.Pod, 0, len(resp.GetPods()))
	for _, raw := range resp.GetPods() {
		var pod v1.Pod
		if pod.Unmarshal(raw) != nil {
			continue // podsync's bug; the others are worth showing
		}
		out = append(out, pod)
	}
	return out, nil
}

// Waits implements nodepage.Peers.
func (p *Page) Waits(ctx context.Context) (map[types.UID][]nodepage.Wait, error) {
	resp, err := p.podsync.ListWaits(ctx, &podsyncv1.ListWaitsRequest{})
	if err != nil {
		return nil, err
	}
	out := map[types.UID][]nodepage.Wait{}
	for _, pod := range resp.GetPods() {
		out[types.UID(pod.GetPod().GetUid())] = waitsOf(pod.GetWaits())
	}
	return out, nil
}

func waitsOf(waits []*podsyncv1.Wait) []nodepage.Wait {
	var out []nodepage.Wait
	for _, w := range waits {
		out = append(out, nodepage.Wait{
			Kind: w.GetKind(), Object: w.GetObject(), Reason: reasonOf(w), Advice: w.GetAdvice(), Since: stamp(w.GetSince()), Retry: stamp(w.GetRetryTime()),
		})
	}
	return out
}

// PodEvents implements nodepage.Peers.
func (p *Page) PodEvents(ctx context.Context) ([]nodepage.Event, error) {
	resp, err := p.podsync.ListRecentEvents(ctx, &podsyncv1.ListRecentEventsRequest{})
	if err != nil {
		return nil, err
	}
	var out []nodepage.Event
	for _, e := range slices.Backward(resp.GetEvents()) {
		out = append(out, nodepage.Event{
			Time: e.GetTime().AsTime(), Kind: e.GetKind(), Namespace: e.GetNamespace(), Name: e.GetName(), Container: e.GetContainer(),
			Type: e.GetType(), Reason: e.GetReason(), Message: messageOf(e), Count: e.GetCount(),
		})
	}
	return out, nil
}

// NodeEvents implements nodepage.Peers.
func (p *Page) NodeEvents(ctx context.Context) ([]nodepage.Event, error) {
	resp, err := p.node.ListRecentEvents(ctx, &nodestatusv1.ListRecentEventsRequest{})
	if err != nil {
		return nil, err
	}
	var out []nodepage.Event
	for _, e := range slices.Backward(resp.GetEvents()) {
		out = append(out, nodepage.Event{
			Time: e.GetTime().AsTime(), Kind: "Node", Type: e.GetType(), Reason: e.GetReason(), Message: e.GetMessage(), Count: e.GetCount(),
		})
	}
	return out, nil
}

// Node implements nodepage.Peers.
func (p *Page) Node(ctx context.Context) (*v1.Node, bool, error) {
	resp, err := p.node.GetNode(ctx, &nodestatusv1.GetNodeRequest{})
	if err != nil {
		return nil, false, err
	}
	node := &v1.Node{}
	return node, resp.GetRegistered(), node.Unmarshal(resp.GetNode())
}

// Process implements nodepage.Peers.
func (p *Page) Process(ctx context.Context, name string) (nodepage.Process, error) {
	info, err := p.services[name].GetInfo(ctx, &commonv1.GetInfoRequest{})
	if err != nil {
		return nodepage.Process{}, err
	}
	out := nodepage.Process{Up: true, Version: info.GetBuild().GetVersion(), Since: stamp(info.GetStartTime())}
	for _, d := range info.GetDependencies() {
		if !d.GetReady() {
			out.Lacks = append(out.Lacks, d.GetName()+": "+d.GetMessage())
		}
	}
	return out, nil
}

// Summary implements nodepage.Peers.
func (p *Page) Summary(ctx context.Context) ([]byte, error) {
	resp, err := p.stats.GetSummary(ctx, &statsv1.GetSummaryRequest{})
	return resp.GetSummaryJson(), err
}

// Explain implements nodepage.Peers.
func (p *Page) Explain(ctx context.Context, namespace, name, uid string) (*nodepage.PodPage, error) {
	why, err := p.podsync.ExplainPod(ctx, &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: namespace, Name: name, Uid: uid}})
	if err != nil {
		return nil, err
	}
	out := &nodepage.PodPage{
		UID: why.GetPod().GetUid(), Namespace: why.GetPod().GetNamespace(), Name: why.GetPod().GetName(), Phase: why.GetPhase(),
		Reason: why.GetReason(), Message: why.GetMessage(), Gone: stamp(why.GetGoneTime()), Waits: waitsOf(why.GetWaits()),
		Timeline: []nodepage.Entry{}, Dropped: why.GetDroppedEntries(),
	}
	for _, e := range why.GetTimeline() {
		failed, detail := saidOf(e)
		out.Timeline = append(out.Timeline, nodepage.Entry{
			Time: e.GetTime().AsTime(), First: stamp(e.GetFirstTime()), Step: e.GetStep(), Object: e.GetObject(), Seconds: e.GetDuration().AsDuration().Seconds(),
			Error: failed, Detail: detail, Count: e.GetCount(), Running: e.GetRunning(),
		})
	}
	return out, nil
}

// Probes implements nodepage.Peers. They are without what the last attempt said: it is the
// container's own output, or names the URL or the command. `polylet probes` shows it.
func (p *Page) Probes(ctx context.Context, namespace, name string) ([]nodepage.Probe, error) {
	resp, err := p.probes.ListProbes(ctx, &probesv1.ListProbesRequest{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	var out []nodepage.Probe
	for _, s := range resp.GetProbes() {
		t := s.GetTarget()
		out = append(out, nodepage.Probe{
			Container: t.GetKey().GetContainer(), Type: strings.ToLower(strings.TrimPrefix(t.GetKey().GetType().String(), "PROBE_TYPE_")),
			Handler: handlerOf(t), Period: t.GetPeriodSeconds(),
			Outcome: strings.ToLower(strings.TrimPrefix(s.GetOutcome().String(), "PROBE_OUTCOME_")),
			LastOK:  s.GetLastAttemptOk(), Last: stamp(s.GetLastAttemptTime()), Streak: s.GetStreak(),
		})
	}
	return out, nil
}

// stamp is a proto's time; nil when it is unset.
func stamp(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}
