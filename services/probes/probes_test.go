package probes

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	success = podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS
	unknown = podsyncv1.ProbeOutcome_PROBE_OUTCOME_UNSPECIFIED
)

// fakePodsync is podsync as probes sees it, one epoch of it.
type fakePodsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	epoch uint64
	exec  func(n int, req *podsyncv1.ExecSyncRequest) (int32, error)

	mu       sync.Mutex
	snapshot []*podsyncv1.ProbeTarget
	send     chan *podsyncv1.SyncProbesResponse
	firsts   []*podsyncv1.SyncProbesRequest
	results  []*podsyncv1.ProbeResult
	events   []*podsyncv1.ProbeEvent
	execs    []time.Time
}

func (f *fakePodsync) SyncProbes(stream podsyncv1.PodSyncService_SyncProbesServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.firsts = append(f.firsts, first)
	frame := &podsyncv1.SyncProbesResponse{Epoch: f.epoch, Revision: 1, Snapshot: true, Targets: f.snapshot}
	f.mu.Unlock()
	if err := stream.Send(frame); err != nil {
		return err
	}
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.results = append(f.results, req.GetResults()...)
			f.events = append(f.events, req.GetEvents()...)
			f.mu.Unlock()
		}
	}()
	for {
		select {
		case frame := <-f.send:
			if frame == nil {
				return fmt.Errorf("%w: cut", rpcerr.ErrUnavailable)
			}
			frame.Epoch = f.epoch
			if err := stream.Send(frame); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (f *fakePodsync) ExecSync(_ context.Context, req *podsyncv1.ExecSyncRequest) (*podsyncv1.ExecSyncResponse, error) {
	f.mu.Lock()
	f.execs = append(f.execs, time.Now())
	n := len(f.execs)
	f.mu.Unlock()
	code, err := f.exec(n, req)
	if err != nil {
		return nil, rpcerr.ToStatus(err).Err()
	}
	return &podsyncv1.ExecSyncResponse{ExitCode: code, Stdout: []byte("out")}, nil
}

// seen returns what came up, in short: "type:outcome" per result, with how many
// successes (+1) or failures (-1) speak against it.
func (f *fakePodsync) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.results {
		out = append(out, strings.ToLower(strings.TrimPrefix(r.GetKey().GetType().String(), "PROBE_TYPE_"))+
			":"+strings.ToLower(strings.TrimPrefix(r.GetOutcome().String(), "PROBE_OUTCOME_"))+counts(r)+"@"+r.GetContainerId())
	}
	return strings.Join(out, " ")
}

func counts(r *podsyncv1.ProbeResult) string {
	if n := r.GetSuccesses() - r.GetFailures(); n != 0 {
		return fmt.Sprintf("%+d", n)
	}
	return ""
}

// restarted is the target as podsync sends it to a process that has just been
// started: with what it was told last.
func (f *fakePodsync) restarted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.results {
		for _, t := range f.snapshot {
			if t.GetKey().GetType() == r.GetKey().GetType() {
				t.LastOutcome, t.LastSuccesses, t.LastFailures = r.GetOutcome(), r.GetSuccesses(), r.GetFailures()
			}
		}
	}
}

func (f *fakePodsync) eventTexts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, e := range f.events {
		out = append(out, e.GetReason()+": "+e.GetMessage())
	}
	return out
}

func (f *fakePodsync) execCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.execs)
}

// node is a probes process whose podsync can be exchanged.
type node struct {
	t       *testing.T
	mu      sync.Mutex
	server  *grpc.Server
	lis     *bufconn.Listener
	conn    *grpc.ClientConn
	service *Service
	metrics *prometheus.Registry
	stop    func()
}

func newNode(t *testing.T, f *fakePodsync) *node {
	n := &node{t: t, metrics: prometheus.NewRegistry()}
	n.start(f)
	conn, err := grpc.NewClient("passthrough:///podsync", append(rpc.ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			n.mu.Lock()
			lis := n.lis
			n.mu.Unlock()
			return lis.DialContext(ctx)
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	n.conn = conn
	n.startProbes()
	return n
}

func (n *node) start(f *fakePodsync) {
	f.send = make(chan *podsyncv1.SyncProbesResponse)
	server, lis := rpc.NewServer(rpc.ServerConfig{Insecure: true}), bufconn.Listen(1<<20)
	podsyncv1.RegisterPodSyncServiceServer(server, f)
	n.mu.Lock()
	n.server, n.lis = server, lis
	n.mu.Unlock()
	go func() { _ = server.Serve(lis) }()
}

func (n *node) startProbes() {
	n.metrics = prometheus.NewRegistry()
	service, err := New(Config{}, Deps{
		Metrics: prometheus.NewRegistry(), ProbeMetrics: n.metrics, Epoch: 7, Podsync: n.conn,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	n.service = service
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("Run returned %v after a clean stop", err)
		}
	}
}

func (n *node) close() {
	n.stop()
	n.conn.Close()
	n.server.Stop()
}

func execTarget(typ podsyncv1.ProbeType, id string, edit func(*podsyncv1.ProbeTarget)) *podsyncv1.ProbeTarget {
	t := &podsyncv1.ProbeTarget{
		Key: &podsyncv1.ProbeKey{PodUid: "u", Container: "c", Type: typ},
		Pod: &podsyncv1.PodRef{Namespace: "ns", Name: "p", Uid: "u"}, ContainerId: id,
		ContainerStartTime: timestamppb.Now(), Started: true, PodIp: "10.0.0.1",
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		Handler: &podsyncv1.ProbeTarget_Exec{Exec: &podsyncv1.ExecHandler{Command: []string{"check"}}},
	}
	if edit != nil {
		edit(t)
	}
	return t
}

const (
	liveness  = podsyncv1.ProbeType_PROBE_TYPE_LIVENESS
	readiness = podsyncv1.ProbeType_PROBE_TYPE_READINESS
	startup   = podsyncv1.ProbeType_PROBE_TYPE_STARTUP
)

func codes(list string) func(int, *podsyncv1.ExecSyncRequest) (int32, error) {
	return func(n int, _ *podsyncv1.ExecSyncRequest) (int32, error) {
		if list[min(n, len(list))-1] == '+' {
			return 0, nil
		}
		return 1, nil
	}
}

func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func TestAReadyApplicationIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(10 * time.Millisecond)
		if got := f.seen(); got != "readiness:success@a" {
			t.Errorf("after 10 ms podsync knows %q", got)
		}
	})
}

func TestANewContainerIDBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{execTarget(readiness, "b", nil)}}
		settle(time.Second)
		if got := f.seen(); got != "readiness:success@a readiness:success@b" {
			t.Errorf("podsync knows %q", got)
		}
	})
}

func TestFailuresAreReportedAtTheThresholdWithTheKubeletsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("-"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(liveness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })}}
		n := newNode(t, f)
		defer n.close()
		settle(25 * time.Second)
		if got := f.seen(); got != "liveness:success-1@a liveness:success-2@a" {
			t.Errorf("before the threshold podsync got %q", got)
		}
		settle(time.Hour)
		if got := f.seen(); got != "liveness:success-1@a liveness:success-2@a liveness:failure@a" {
			t.Errorf("podsync knows %q", got)
		}
		if got := f.execCount(); got != 3 {
			t.Errorf("%d attempts, want 3: it holds after the threshold", got)
		}
		want := "Unhealthy: Liveness probe failed: out"
		if got := f.eventTexts(); len(got) != 3 || got[0] != want {
			t.Errorf("events %q, want three times %q", got, want)
		}
	})
}

func TestErrorsAreTriedThreeTimesAndLeaveTheOutcomeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)},
			exec: func(int, *podsyncv1.ExecSyncRequest) (int32, error) {
				return 0, fmt.Errorf("%w: broken", rpcerr.ErrInternal)
			}}
		n := newNode(t, f)
		defer n.close()
		settle(12 * time.Second)
		if got := f.execCount(); got != 3 {
			t.Errorf("%d attempts in the tick, want 3", got)
		}
		want := "Unhealthy: Liveness probe errored and resulted in unknown state: internal error: broken"
		if got := f.eventTexts(); len(got) != 1 || got[0] != want {
			t.Errorf("events %q, want %q", got, want)
		}
		if f.seen() != "" || len(n.series("prober_probe_total")) != 0 {
			t.Errorf("errors were counted: %q %v", f.seen(), n.series("prober_probe_total"))
		}
	})
}

func TestACommandThatTimesOutIsAFailureWithTheKubeletsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)},
			exec: func(int, *podsyncv1.ExecSyncRequest) (int32, error) { return 0, fmt.Errorf("%w", rpcerr.ErrTimeout) }}
		n := newNode(t, f)
		defer n.close()
		settle(12 * time.Second)
		want := `Unhealthy: Liveness probe failed: command timed out: "check" timed out after 1s`
		if got := f.eventTexts(); len(got) != 1 || got[0] != want {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

func TestStartupSuccessOpensTheGateForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shut := func(t *podsyncv1.ProbeTarget) { t.Started = false }
		f := &fakePodsync{epoch: 1, exec: codes("--+"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(startup, "a", shut), execTarget(readiness, "a", shut), execTarget(liveness, "a", shut)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		if got := f.seen(); got != "startup:success@a" {
			t.Fatalf("podsync knows %q", got)
		}
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{
			execTarget(startup, "a", nil), execTarget(readiness, "a", nil), execTarget(liveness, "a", nil)}}
		settle(10 * time.Millisecond)
		if got := f.seen(); got != "startup:success@a readiness:success@a" {
			t.Errorf("right after the gate opened podsync knows %q", got)
		}
		settle(12 * time.Second)
		if got := f.seen(); !strings.Contains(got, "liveness:success@a") {
			t.Errorf("a period later podsync knows %q", got)
		}
	})
}

func TestARestartOfPodsyncGetsAllHeldResultsInTheFirstFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		n.server.Stop()
		settle(30 * time.Second) // podsync is away; nothing may be lost
		// The new podsync does not know the container yet at first.
		g := &fakePodsync{epoch: 2, exec: codes("-")}
		n.start(g)
		settle(5 * time.Second)
		g.mu.Lock()
		if len(g.firsts) != 1 || len(g.firsts[0].GetResults()) != 1 || g.firsts[0].GetResults()[0].GetOutcome() != success || g.firsts[0].GetEpoch() != 7 {
			t.Errorf("first frames %v", g.firsts)
		}
		g.mu.Unlock()
		g.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		settle(time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("the new podsync knows %q: what was found before must go on", got)
		}
	})
}

func TestAResultThatPodsyncDoesNotHoldIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		n.server.Stop()
		// It heard the result before it knew the target, and dropped it.
		g := &fakePodsync{epoch: 2, exec: codes("+"), snapshot: f.snapshot}
		n.start(g)
		settle(5 * time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("podsync knows %q", got)
		}
		held := execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })
		g.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{held}}
		settle(time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("what podsync holds already was sent again: %q", got)
		}
	})
}

func TestAProbeThatDoesNotComeBackIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		for epoch, want := range []int{2: 1, 3: 1, 4: 1, 5: 0} {
			if epoch < 2 {
				continue
			}
			n.server.Stop()
			settle(time.Second)
			g := &fakePodsync{epoch: uint64(epoch), exec: codes("+")}
			n.start(g)
			settle(4 * time.Minute)
			g.mu.Lock()
			if len(g.firsts) != 1 || len(g.firsts[0].GetResults()) != want {
				t.Errorf("epoch %d: first frames %v, want %d results", epoch, g.firsts, want)
			}
			g.mu.Unlock()
		}
		if got := n.series("prober_probe_total"); len(got) != 0 {
			t.Errorf("its series stay: %v", got)
		}
	})
}

func TestARestartOfProbesFlipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("-"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })}}
		n := newNode(t, f)
		defer n.close()
		for range 5 {
			settle(2 * time.Second)
			n.stop()
			n.startProbes()
		}
		if got := f.seen(); got != "" {
			t.Errorf("restarts alone reported %q", got)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, first := range f.firsts {
			if len(first.GetResults()) != 0 {
				t.Errorf("a process that knew nothing reported %v", first.GetResults())
			}
		}
	})
}

func TestARestartOfProbesGoesOnCounting(t *testing.T) {
	for name, tc := range map[string]struct {
		typ                podsyncv1.ProbeType
		last               podsyncv1.ProbeOutcome
		successes, answers string
		want               string
	}{
		"failures of what was alive":      {liveness, success, "", "-", "liveness:success-1@a liveness:success-2@a liveness:failure@a"},
		"failures of what nobody knows":   {liveness, unknown, "", "-", "liveness:unspecified-1@a liveness:unspecified-2@a liveness:failure@a"},
		"a success between begins anew":   {liveness, success, "", "-+--+", "liveness:success-1@a liveness:success@a liveness:success-1@a liveness:success-2@a liveness:success@a"},
		"successes of what was not ready": {readiness, podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE, "3", "+", "readiness:failure+1@a readiness:failure+2@a readiness:success@a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakePodsync{epoch: 1, exec: codes(tc.answers), snapshot: []*podsyncv1.ProbeTarget{
					execTarget(tc.typ, "a", func(t *podsyncv1.ProbeTarget) {
						t.LastOutcome, t.ContainerStartTime = tc.last, timestamppb.New(time.Now().Add(-time.Hour))
						if tc.successes != "" {
							t.SuccessThreshold = 3
						}
					})}}
				n := newNode(t, f)
				defer n.close()
				for range 5 {
					settle(10 * time.Second) // one attempt in each life
					n.stop()
					f.restarted()
					n.startProbes()
				}
				if got := f.seen(); got != tc.want {
					t.Errorf("podsync was told %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestExecProbesWaitQuietlyWhilePodsyncIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(11 * time.Second)
		n.server.Stop()
		settle(2 * time.Minute)
		g := &fakePodsync{epoch: 2, exec: codes("+"), snapshot: f.snapshot}
		n.start(g)
		settle(time.Minute)
		if got := g.eventTexts(); len(got) != 0 {
			t.Errorf("events %q", got)
		}
		if g.execCount() < 5 {
			t.Errorf("only %d attempts in a minute after podsync came back", g.execCount())
		}
	})
}

// windows counts what lies in each 10 ms since begin.
func windows(begin time.Time, at []time.Time) (most int, inSecond map[int]int) {
	in := map[time.Duration]int{}
	inSecond = map[int]int{}
	for _, a := range at {
		in[a.Sub(begin)/(10*time.Millisecond)]++
		inSecond[int(a.Sub(begin)/time.Second)]++
	}
	for _, n := range in {
		most = max(most, n)
	}
	return most, inSecond
}

// All of them became known in the same moment, which is the worst case: a node
// whose probes process starts for the first time, or comes back.
func TestFiveHundredContainersProbedOnceASecondAreSpreadEvenly(t *testing.T) {
	const containers, seconds = 500, 10
	// Five are due in 10 ms when they lie perfectly even.
	const mostInWindow = 20
	for name, outcome := range map[string]podsyncv1.ProbeOutcome{"for the first time": unknown, "after a restart of probes": success} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakePodsync{epoch: 1, exec: codes("+")}
				for i := range containers {
					f.snapshot = append(f.snapshot, execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) {
						t.Key.PodUid, t.PeriodSeconds, t.LastOutcome = fmt.Sprintf("uid-%d", i), 1, outcome
					}))
				}
				began := time.Now()
				n := newNode(t, f)
				defer n.close()
				settle(seconds * time.Second)
				f.mu.Lock()
				most, inSecond := windows(began, f.execs)
				f.mu.Unlock()
				if most > mostInWindow {
					t.Errorf("%d probes began within 10 ms, want %d at most", most, mostInWindow)
				}
				for s := 2; s < seconds-1; s++ {
					if inSecond[s] != containers {
						t.Errorf("%d probes began in second %d, want one of each container", inSecond[s], s)
					}
				}
			})
		})
	}
}

func TestNothingHappensWithoutTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Removed: []*podsyncv1.ProbeKey{f.snapshot[0].GetKey()}}
		settle(24 * time.Hour)
		if got := f.execCount(); got != 0 {
			t.Errorf("%d attempts of a probe that is gone", got)
		}
		if got := n.list(); len(got) != 0 {
			t.Errorf("still listed: %v", got)
		}
	})
}

func TestListProbesShowsHowEachStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(readiness, "a", nil), execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		got := n.list()
		if len(got) != 2 || got[0].GetTarget().GetKey().GetType() != liveness || got[0].GetOutcome() != unknown ||
			got[1].GetOutcome() != success || !got[1].GetLastAttemptOk() || got[1].GetMessage() != "out" ||
			got[1].GetNextAttemptTime().AsTime().Before(time.Now()) || got[1].GetTarget().GetExec().GetCommand()[0] != "check" {
			t.Errorf("listed %v", got)
		}
	})
}

func TestSeriesCountAttemptsAndGoWithTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+-"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(25 * time.Second)
		got := n.series("prober_probe_total")
		if got["successful"] != 1 || got["failed"] != 2 {
			t.Errorf("prober_probe_total %v, want 1 successful and 2 failed", got)
		}
		if got := n.series("prober_probe_duration_seconds"); got[""] != 1 {
			t.Errorf("prober_probe_duration_seconds %v, want one observation", got)
		}
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Removed: []*podsyncv1.ProbeKey{f.snapshot[0].GetKey()}}
		settle(time.Second)
		if got := n.series("prober_probe_total"); len(got) != 0 {
			t.Errorf("series of a probe that is gone: %v", got)
		}
	})
}

func (n *node) list() []*probesv1.ProbeState {
	n.t.Helper()
	res, err := n.service.server.ListProbes(n.t.Context(), &probesv1.ListProbesRequest{Namespace: "ns"})
	if err != nil {
		n.t.Fatal(err)
	}
	return res.GetProbes()
}

// series returns a family's values by the label result.
func (n *node) series(name string) map[string]float64 {
	n.t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					label = l.GetValue()
				}
			}
			out[label] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestNoKubernetesClientIsLinked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list is not available here: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "k8s.io/") && !strings.HasPrefix(dep, "k8s.io/klog/") {
			t.Errorf("probes links %s", dep)
		}
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{}, Deps{})
	for _, want := range []string{"Podsync", "Metrics", "Epoch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if got := userAgent("v1.36.6"); got != "kube-probe/1.36" {
		t.Errorf("user agent %q", got)
	}
}
