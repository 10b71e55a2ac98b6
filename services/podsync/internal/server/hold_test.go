package server

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
)

// oneContainer is an execreaper.Host whose container c1 runs "sh" in an exec.
type oneContainer struct {
	mu  sync.Mutex
	all []execreaper.Process
}

func newContainer() *oneContainer {
	return &oneContainer{all: []execreaper.Process{
		{PID: 1, First: true, Parent: 9, SID: 1, Start: 1, Level: 2, ParentLevel: 1},
		{PID: 7, Parent: 9, SID: 7, Start: 101, Argv: []string{"sh"}, Level: 2, ParentLevel: 1},
	}}
}

func (c *oneContainer) Containers([]string) (map[string][]execreaper.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string][]execreaper.Process{"c1": slices.Clone(c.all)}, nil
}

func (c *oneContainer) Commands([]execreaper.Process) {}

func (c *oneContainer) Level() int { return 1 }

func (c *oneContainer) IgnoresHangup(int) bool { return false }

func (c *oneContainer) Signal(_ string, p execreaper.Process, _ unix.Signal) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(q execreaper.Process) bool { return q.PID == p.PID })
	return false, nil
}

// runs says whether the command is there.
func (c *oneContainer) runs() bool {
	all, _ := c.Containers(nil)
	return len(all["c1"]) == 2
}

// holding is podsync's process: a server with its own Book.
type holding struct {
	container *oneContainer
	client    podsyncv1.PodSyncServiceClient
	conn      *grpc.ClientConn
	stop      func() // as a signal does
	stopParts func() // of it the parts hear first
	asked     []string
	err       error // of the runtime
}

func withHolding(t *testing.T, test func(t *testing.T, h *holding)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &holding{container: newContainer()}
		book := execreaper.New(execreaper.Deps{Host: h.container, Now: func() uint64 { return 100 }})
		r := &rig{pods: podcache.NewPods(7), table: podcache.NewTable(7)}
		r.addRunning()
		s, err := New(Deps{
			Pods: r.pods, Table: r.table, Probes: probestore.NewBoard(probestore.Deps{Epoch: 7}), Runtime: &fakeRuntime{}, Logs: &fakeLogs{},
			State: func() RuntimeState { return r.state }, Sessions: book,
			ContainerRuns: func(_ context.Context, id string) (bool, error) {
				h.asked = append(h.asked, id)
				return id == "c1", h.err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		stopping, cancel := context.WithCancel(t.Context())
		h.stop = cancel
		server := rpc.NewServer(rpc.ServerConfig{Insecure: true, Stopping: stopping})
		s.Register(server)
		listener := bufconn.Listen(1 << 20)
		go func() { _ = server.Serve(listener) }()
		var parts sync.WaitGroup
		running, stopParts := context.WithCancel(stopping)
		h.stopParts = stopParts
		parts.Go(func() { _ = book.Run(running) })
		if h.conn, err = grpc.NewClient("passthrough:///x", append(rpc.ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...); err != nil {
			t.Fatal(err)
		}
		h.client = podsyncv1.NewPodSyncServiceClient(h.conn)
		time.Sleep(time.Minute) // all clients are back
		test(t, h)
		h.conn.Close()
		cancel()
		parts.Wait()
		server.Stop()
	})
}

// begin opens a stream with its first message and returns the answer.
func (h *holding) begin(t *testing.T, first *podsyncv1.HoldExecRequest) (podsyncv1.PodSyncService_HoldExecClient, *podsyncv1.HoldExecResponse, error) {
	t.Helper()
	stream, err := h.client.HoldExec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(first); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	return stream, res, err
}

func opening(command ...string) *podsyncv1.HoldExecRequest {
	return &podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Open{Open: &podsyncv1.OpenExecRequest{
		Pod: ref, Container: "c", Command: command, Streams: &podsyncv1.StreamOptions{Stdout: true},
	}}}
}

func resuming(id string, command ...string) *podsyncv1.HoldExecRequest {
	return &podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Resume{Resume: &podsyncv1.ResumeExec{
		ContainerId: id, Command: command, BeganTicks: 100,
	}}}
}

func over(left bool) *podsyncv1.HoldExecRequest {
	return &podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Over{Over: &podsyncv1.ExecOver{ClientLeft: left}}}
}

func TestACommandWhoseClientLeftIsEndedBeforeItsStreamEnds(t *testing.T) {
	for name, first := range map[string]*podsyncv1.HoldExecRequest{"opened": opening("sh"), "resumed": resuming("c1", "sh")} {
		withHolding(t, func(t *testing.T, h *holding) {
			stream, res, err := h.begin(t, first)
			if err != nil || res.GetContainerId() != "c1" || res.GetBeganTicks() != 100 || (res.GetUrl() != "") != (first.GetOpen() != nil) {
				t.Fatalf("%s: %v, %v", name, res, err)
			}
			time.Sleep(time.Hour)
			if !h.container.runs() {
				t.Fatalf("%s: the command has ended in its session", name)
			}
			if err := stream.Send(over(true)); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil || !h.container.runs() {
				t.Errorf("%s: what is there is not noted before something is done: %v", name, err)
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) || h.container.runs() {
				t.Errorf("%s: at the end: %v, it runs: %v", name, err, h.container.runs())
			}
		})
	}
}

func TestACommandThatEndedIsNotLookedFor(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		stream, _, err := h.begin(t, opening("sh"))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(over(false)); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if !h.container.runs() {
			t.Error("something was ended")
		}
	})
}

func TestASessionWhoseGatewayIsKilledIsOneThatWasLeft(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		if _, _, err := h.begin(t, opening("sh")); err != nil {
			t.Fatal(err)
		}
		h.conn.Close()
		time.Sleep(time.Hour)
		if h.container.runs() {
			t.Error("the command runs")
		}
	})
}

func TestAPodsyncThatStopsEndsNothing(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		stream, _, err := h.begin(t, opening("sh"))
		if err != nil {
			t.Fatal(err)
		}
		h.stop()
		_, err = stream.Recv()
		wantCode(t, err, codes.Unavailable, "stopping")
		h.conn.Close()
		time.Sleep(time.Hour)
		if !h.container.runs() {
			t.Error("something was ended")
		}
	})
}

func TestOnlyARunningContainerOfTheRuntimeIsResumed(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		if _, _, err := h.begin(t, resuming("system.slice", "sh")); !errors.Is(err, io.EOF) || !slices.Equal(h.asked, []string{"system.slice"}) {
			t.Errorf("one that does not run: %v, asked for %v", err, h.asked)
		}
		h.err = errors.New("the runtime is away")
		_, _, err := h.begin(t, resuming("c1", "sh"))
		wantCode(t, err, codes.Unknown, "the runtime is away")
		for _, first := range []*podsyncv1.HoldExecRequest{{}, over(true), resuming("", "sh"), resuming("c1")} {
			_, _, err := h.begin(t, first)
			wantCode(t, err, codes.InvalidArgument, "first message")
		}
		_, _, err = h.begin(t, opening())
		wantCode(t, err, codes.InvalidArgument, "empty")
		time.Sleep(time.Hour)
		synctest.Wait()
		if !h.container.runs() {
			t.Error("something was ended")
		}
	})
}

func TestAServerWithoutABookDoesNotKnowHoldExec(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		stream, err := r.client.HoldExec(t.Context())
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, codes.Unimplemented, "HoldExec")
	})
}

// TestSessionsThatWaitLongAfterTheirClientsLeftTakeNotAllCalls: what may be the command
// of a session that goes on is left alone as long as that does.
func TestSessionsThatWaitLongAfterTheirClientsLeftTakeNotAllCalls(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		if _, _, err := h.begin(t, opening("sh")); err != nil { // goes on
			t.Fatal(err)
		}
		const more = 20
		var mu sync.Mutex
		ended := map[int]error{}
		for i := range mostLeavingOfOne + more {
			stream, _, err := h.begin(t, opening("sh"))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(over(true)); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil { // it has looked
				t.Fatal(err)
			}
			go func() {
				_, err := stream.Recv()
				mu.Lock()
				defer mu.Unlock()
				ended[i] = err
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ended) != more {
			t.Errorf("%d of %d calls have ended, want %d", len(ended), mostLeavingOfOne+more, more)
		}
		for i := range more {
			if err, over := ended[i]; !over || !errors.Is(err, io.EOF) {
				t.Errorf("call %d, of those that wait longest: ended %t, %v", i, over, err)
			}
		}
		if !h.container.runs() {
			t.Error("a command that may be another session's was ended")
		}
	})
}

func TestOfThoseWhoHaveMostLeavingSessionsTheFirstAreGivenUp(t *testing.T) {
	var l leaving
	begin := func(whose string) context.Context {
		ctx, _ := l.begin(t.Context(), whose)
		return ctx
	}
	var many []context.Context
	for range mostLeavingOfOne {
		many = append(many, begin("many"))
	}
	var few []context.Context
	for range mostLeaving - mostLeavingOfOne + 10 {
		few = append(few, begin("few"))
	}
	for i, ctx := range many {
		if given := errors.Is(context.Cause(ctx), errGivenUp); given != (i < 10) {
			t.Errorf("of the many, %d is given up: %t", i, given)
		}
	}
	for i, ctx := range few {
		if ctx.Err() != nil {
			t.Errorf("of the few, %d is given up", i)
		}
	}
	_, settled := l.begin(t.Context(), "few")
	settled()
	if len(l.all) != mostLeaving-1 { // one of the many made room for it
		t.Errorf("%d are counted", len(l.all))
	}
}

// TestAStopOfWhichThePartsHearFirstLosesNoCommand: whoever waits for its end resumes with
// the next podsync.
func TestAStopOfWhichThePartsHearFirstLosesNoCommand(t *testing.T) {
	withHolding(t, func(t *testing.T, h *holding) {
		stream, _, err := h.begin(t, opening("sh"))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Over{Over: &podsyncv1.ExecOver{ClientLeft: true}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		h.stopParts()
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("told %v: the session is not resumed", err)
		}
		if !h.container.runs() {
			t.Error("a podsync that stops ended the command")
		}
	})
}
