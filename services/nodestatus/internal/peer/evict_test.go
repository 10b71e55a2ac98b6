package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// fakePodsync has one pod, in epoch 7 and revision 3.
type fakePodsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	lists   int // in full
	partial bool
	endings []*podsyncv1.PodEnding
	stop    *podsyncv1.StopPodRequest
	told    *podsyncv1.SetPressureRequest
	// reclaimed is what a reclaim answers; nil: it is of an older release.
	reclaimed *podsyncv1.ReclaimResponse
}

func (f *fakePodsync) Reclaim(ctx context.Context, r *podsyncv1.ReclaimRequest) (*podsyncv1.ReclaimResponse, error) {
	if f.reclaimed == nil {
		return f.UnimplementedPodSyncServiceServer.Reclaim(ctx, r)
	}
	return f.reclaimed, nil
}

func (f *fakePodsync) ListDesiredPods(_ context.Context, r *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	out := &podsyncv1.ListDesiredPodsResponse{Epoch: 7, Revision: 3, Partial: f.partial, Endings: f.endings, EndingsKnown: f.endings != nil}
	if r.GetKnownEpoch() == 7 && r.GetKnownRevision() == 3 {
		out.Unchanged = true
		return out, nil
	}
	f.lists++
	data, err := (&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}).Marshal()
	out.Pods = [][]byte{data}
	return out, err
}

func (f *fakePodsync) StopPod(_ context.Context, r *podsyncv1.StopPodRequest) (*podsyncv1.StopPodResponse, error) {
	f.stop = r
	return &podsyncv1.StopPodResponse{Already: true}, nil
}

func (f *fakePodsync) SetPressure(_ context.Context, r *podsyncv1.SetPressureRequest) (*podsyncv1.SetPressureResponse, error) {
	f.told = r
	return &podsyncv1.SetPressureResponse{}, nil
}

type fakeStats struct {
	statsv1.UnimplementedStatsServiceServer
	nameless, old bool
}

func (f fakeStats) ListUnlinkedFiles(ctx context.Context, r *statsv1.ListUnlinkedFilesRequest) (*statsv1.ListUnlinkedFilesResponse, error) {
	if f.old {
		return f.UnimplementedStatsServiceServer.ListUnlinkedFiles(ctx, r)
	}
	return &statsv1.ListUnlinkedFilesResponse{Containers: []*statsv1.UnlinkedFiles{
		{PodUid: "u", Container: "c", RootBytes: 1, RootFiles: 2, LayerBytes: 3, LayerFiles: 4, Largest: "/x", Volumes: []*statsv1.UnlinkedInVolume{{Volume: "v", Bytes: 5, Files: 6}}, CountedVolumes: []*statsv1.UnlinkedInVolume{{Volume: "quota", Bytes: 7, Files: 8}}},
		{PodUid: "w", Container: "d", Incomplete: true},
	}, Incomplete: true}, nil
}

func (f fakeStats) GetSummary(_ context.Context, r *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	if r.GetOnlyCpuAndMemory() {
		return &statsv1.GetSummaryResponse{SummaryJson: []byte(`{"node":{"nodeName":"n"},"pods":[]}`), Nameless: f.nameless}, nil
	}
	if !r.GetCountEnded() { // A pod that has filled a disk and crashed would not be found.
		return nil, status.Error(codes.InvalidArgument, "what has ended is to count")
	}
	if r.GetRenewLayers() {
		return &statsv1.GetSummaryResponse{SummaryJson: []byte(`{"node":{"nodeName":"weighed"}}`), UnsurePodUids: []string{"d"}}, nil
	}
	if r.GetRenewDisk() {
		out := &statsv1.GetSummaryResponse{SummaryJson: []byte(`{}`), UnweighedPodUids: []string{"a"}, UnmeasuredPodUids: []string{"b", "c"}}
		if r.GetRenewSince() != nil {
			out.SummaryJson = fmt.Appendf(nil, `{"node":{"nodeName":"since %d"}}`, r.GetRenewSince().GetSeconds())
		}
		if of := r.GetRenewPodUids(); len(of) > 0 {
			out.SummaryJson = fmt.Appendf(nil, `{"node":{"nodeName":"%v"}}`, of)
		}
		return out, nil
	}
	return &statsv1.GetSummaryResponse{SummaryJson: []byte("{")}, nil
}

func dial(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	srv := grpctest.New(register)
	conn, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); srv.Close() })
	return conn
}

func TestPodsAreFetchedOnceAndStoppedWithAllThatIsSaidOfThem(t *testing.T) {
	podsync := &fakePodsync{}
	pods := NewPods(dial(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, podsync) }))
	for range 3 {
		if all, err := pods.Pods(t.Context()); err != nil || len(all.Pods) != 1 || all.Pods[0].Name != "p" {
			t.Fatalf("%v, %v", all, err)
		}
	}
	podsync.partial = true
	if all, err := pods.Pods(t.Context()); err != nil || !all.Partial || len(all.Pods) != 1 {
		t.Errorf("a list that is not whole: %+v, %v", all, err)
	}
	if podsync.lists != 1 {
		t.Errorf("they were sent %d times", podsync.lists)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u"}}
	already, err := pods.StopPod(t.Context(), evict.Stop{Pod: pod, Message: "m", Signal: "s", Grace: time.Second, Disruption: true, Annotations: map[string]string{"k": "v"}})
	s := podsync.stop
	if err != nil || !already || s.GetPod().GetUid() != "u" || s.GetReason() != "Evicted" || s.GetMessage() != "m" || s.GetSignal() != "s" || s.GetGrace().AsDuration() != time.Second ||
		s.GetDisruptionReason() != "TerminationByKubelet" || s.GetDisruptionMessage() != "m" || s.GetEventAnnotations()["k"] != "v" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := pods.StopPod(t.Context(), evict.Stop{Pod: pod}); err != nil || podsync.stop.GetDisruptionReason() != "" || podsync.stop.GetGrace() == nil {
		t.Errorf("%v, %v", podsync.stop, err)
	}
	if err := pods.SetPressure(t.Context(), []string{"DiskPressure"}, time.Minute); err != nil || !slices.Equal(podsync.told.GetConditions(), []string{"DiskPressure"}) {
		t.Errorf("%v, %v", podsync.told, err)
	}
	if _, err := pods.Reclaim(t.Context(), eviction.Reclaim{Images: true}); !errors.Is(err, rpcerr.ErrUnimplemented) {
		t.Errorf("an older podsync: %v", err)
	}
}

func TestAReclaimOfAPodsyncThatDoesNotKnowAllPodsIsToldAsOneThatItDidNotDo(t *testing.T) {
	podsync := &fakePodsync{reclaimed: &podsyncv1.ReclaimResponse{Images: 2, Failed: []string{"image a is in use"}}}
	pods := NewPods(dial(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, podsync) }))
	if got, err := pods.Reclaim(t.Context(), eviction.Reclaim{Images: true}); err != nil || got.Images != 2 || len(got.Failed) != 1 || got.Epoch != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := pods.Pods(t.Context()); err != nil || all.Epoch != 7 {
		t.Fatalf("%+v, %v", all, err)
	}
	if got, err := pods.Reclaim(t.Context(), eviction.Reclaim{Images: true}); err != nil || got.Epoch != 7 {
		t.Errorf("of which podsync is not said: %+v, %v", got, err)
	}
	podsync.reclaimed = &podsyncv1.ReclaimResponse{Failed: []string{"image a is in use", "not all pods of the node are known yet"}}
	if _, err := pods.Reclaim(t.Context(), eviction.Reclaim{Images: true}); !errors.Is(err, rpcerr.ErrUnavailable) || !strings.Contains(err.Error(), "image a is in use") {
		t.Errorf("an older one, which says so with no error: %v", err)
	}
}

func TestWhichPodsPodsyncEndsIsSaidWithEachAnswer(t *testing.T) {
	podsync := &fakePodsync{}
	pods := NewPods(dial(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, podsync) }))
	if all, err := pods.Pods(t.Context()); err != nil || all.EndingsKnown || len(all.Endings) != 0 {
		t.Fatalf("an older one: %+v, %v", all, err)
	}
	began := time.Now().Add(-time.Minute)
	podsync.endings = []*podsyncv1.PodEnding{
		{Uid: "a", Namespace: "ns", Name: "pod", Reason: "Evicted", Message: "m", Signal: "s", Since: timestamppb.New(began), Grace: durationpb.New(time.Second), Ended: true},
		{Uid: "b", Since: timestamppb.New(began.Add(time.Hour))},
	}
	all, err := pods.Pods(t.Context())
	a, b := all.Endings["a"], all.Endings["b"]
	if err != nil || !all.EndingsKnown || len(all.Pods) != 1 || len(all.Endings) != 2 || podsync.lists != 1 {
		t.Fatalf("%+v, %v, sent %d times", all, err, podsync.lists)
	}
	if a.Since.Sub(began).Abs() > time.Second || a.Grace != time.Second || !a.Ended || a.Reason != "Evicted" || a.Message != "m" || a.Signal != "s" || a.Namespace != "ns" || a.Name != "pod" {
		t.Errorf("%+v", a)
	}
	if b.Grace != 30*time.Second || b.Since.After(time.Now()) {
		t.Errorf("its own grace period, at a time to come: %+v", b)
	}
	podsync.endings = []*podsyncv1.PodEnding{}
	if all, err := pods.Pods(t.Context()); err != nil || len(all.Endings) != 0 {
		t.Errorf("when they have ended: %+v, %v", all, err)
	}
}

func statsOf(t *testing.T, f fakeStats) *Stats {
	t.Helper()
	return NewStats(dial(t, func(s *grpc.Server) { statsv1.RegisterStatsServiceServer(s, f) }), health.Discard(), NewStore(Host()), time.Second, nil)
}

func TestASummaryIsReadOrRefused(t *testing.T) {
	stats := statsOf(t, fakeStats{})
	if s, err := stats.Summary(t.Context(), evict.Brief); err != nil || s.Node.NodeName != "n" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := stats.Summary(t.Context(), evict.Full); err == nil {
		t.Error("half a document was read")
	}
}

func TestWhatIsMeasuredAnewIsSaidWithWhoIsLate(t *testing.T) {
	stats := statsOf(t, fakeStats{})
	s, late, err := stats.Renewed(t.Context(), time.Unix(5, 0))
	if err != nil || s.Node.NodeName != "since 5" || len(late.Layers) != 1 || !late.Layers["a"] || len(late.Directories) != 2 || !late.Directories["c"] {
		t.Errorf("%v, %+v, %v", s, late, err)
	}
	if s, _, err := stats.Renewed(t.Context(), time.Time{}); err != nil || s.Node.NodeName != "" {
		t.Errorf("%v, %v", s, err)
	}
	if s, _, err := stats.Renewed(t.Context(), time.Time{}, "u", "v"); err != nil || s.Node.NodeName != "[u v]" {
		t.Errorf("%v, %v", s, err)
	}
}

func TestWhoseFiguresAreNotSureIsSaidWithWhatLayersWeigh(t *testing.T) {
	s, unsure, err := statsOf(t, fakeStats{}).Weighed(t.Context())
	if err != nil || s.Node.NodeName != "weighed" || !maps.Equal(unsure, map[types.UID]bool{"d": true}) {
		t.Errorf("%v, %v, %v", s, unsure, err)
	}
}

func TestASummaryOfAStatsThatKnowsNoPodsYetSaysNothing(t *testing.T) {
	if _, err := statsOf(t, fakeStats{nameless: true}).Summary(t.Context(), evict.Brief); !errors.Is(err, rpcerr.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// What its filesystem counts in a volume the volume's figure has already, if it was not measured
// anew.
func TestOpenFilesWithoutANameComeByPodBesideWhatIsCountedAndAnOlderStatsHasNone(t *testing.T) {
	got, late, all, err := statsOf(t, fakeStats{}).Unlinked(t.Context())
	want := eviction.Unlinked{
		Container: "c", Root: eviction.Files{Bytes: 1, Count: 2}, Layer: eviction.Files{Bytes: 3, Count: 4}, Largest: "/x",
		Volumes: map[string]eviction.Files{"v": {Bytes: 5, Count: 6}}, Counted: map[string]eviction.Files{"quota": {Bytes: 7, Count: 8}},
	}
	if err != nil || all || len(got["u"]) != 1 || !reflect.DeepEqual(got["u"][0], want) || !reflect.DeepEqual(late, map[types.UID]bool{"w": true}) {
		t.Errorf("%+v, %v, %v", got, late, err)
	}
	if got, _, all, err := statsOf(t, fakeStats{old: true}).Unlinked(t.Context()); err != nil || !all || len(got) > 0 {
		t.Errorf("%+v, %v, %v", got, all, err)
	}
}

// threadStats has a pod of one process with many threads, one with more processes than
// anybody counts threads of, and one whose threads are not counted.
type threadStats struct {
	statsv1.UnimplementedStatsServiceServer
}

func (threadStats) GetSummary(_ context.Context, r *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	out := &statsv1.GetSummaryResponse{SummaryJson: []byte(`{"pods":[` +
		`{"podRef":{"uid":"threads"},"process_stats":{"process_count":1}},{"podRef":{"uid":"more"},"process_stats":{"process_count":9}},` +
		`{"podRef":{"uid":"unknown"},"process_stats":{"process_count":3}},{"podRef":{"uid":"none"}}]}`)}
	if r.GetCountThreads() {
		out.Threads = map[string]uint64{"threads": 5000, "more": 8, "none": 7}
	}
	return out, nil
}

// The machine's process numbers are threads': who has them in one process hid otherwise,
// and all others went.
func TestEachThreadOfAPodCountsAgainstTheMachinesProcesses(t *testing.T) {
	conn := dial(t, func(s *grpc.Server) { statsv1.RegisterStatsServiceServer(s, threadStats{}) })
	summary, err := NewStats(conn, health.Discard(), NewStore(Host()), time.Second, nil).Summary(t.Context(), evict.Full)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"threads": 5000, "more": 9, "unknown": 3}
	for uid, s := range eviction.FiguresOf(summary) {
		if s.ProcessStats == nil && uid == "none" {
			continue
		}
		if got := *s.ProcessStats.ProcessCount; got != want[uid] {
			t.Errorf("%s has %d, want %d", uid, got, want[uid])
		}
	}
}
