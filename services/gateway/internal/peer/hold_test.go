package peer

import (
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
)

// waiting is a podsync that waits for ever after a client has left, as it does while
// another session of the container goes on.
type waiting struct {
	podsyncv1.UnimplementedPodSyncServiceServer
}

func (waiting) HoldExec(s podsyncv1.PodSyncService_HoldExecServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&podsyncv1.HoldExecResponse{Url: "http://127.0.0.1:1/x", ContainerId: "c1", BeganTicks: 1}); err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&podsyncv1.HoldExecResponse{}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func serve(t *testing.T, podsync podsyncv1.PodSyncServiceServer) *Podsync {
	t.Helper()
	server, listener := grpc.NewServer(), bufconn.Listen(1<<20)
	podsyncv1.RegisterPodSyncServiceServer(server, podsync)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///podsync", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return NewPodsync(conn)
}

// heap is what is held, in MiB.
func heap() int64 {
	for range 3 { // pools let go of what they have at the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc >> 20) //nolint:gosec // no heap is so large
}

type pathKey struct{}

func TestOfSessionsWhoseClientsLeftNoLongCommandIsHeld(t *testing.T) {
	p := serve(t, waiting{})
	before := heap()
	const sessions = 64
	for range sessions {
		request, done := context.WithCancel(context.WithValue(t.Context(), pathKey{}, strings.Repeat("p", 1<<20)))
		opened, err := p.OpenExec(request, streaming.Target{Namespace: "ns", Pod: "p", Container: "c"},
			[]string{"sh", "-c", strings.Repeat("x", 1<<20)}, streaming.Streams{Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		opened.Over(true)
		done()
	}
	if held := heap() - before; held > sessions/4 {
		t.Errorf("%d sessions that are over hold %d MiB", sessions, held)
	}
	runtime.KeepAlive(p)
}

// done is a podsync that ends each stream as soon as it has been told that the client left.
type done struct {
	podsyncv1.UnimplementedPodSyncServiceServer
}

func (done) HoldExec(s podsyncv1.PodSyncService_HoldExecServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&podsyncv1.HoldExecResponse{Url: "http://127.0.0.1:1/x", ContainerId: "c1", BeganTicks: 1}); err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.Send(&podsyncv1.HoldExecResponse{})
}

func TestOfASessionThatPodsyncIsDoneWithNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, done{})
		command := append([]string{"sh", "-c", strings.Repeat("x", longestNamed-1000)}, make([]string, mostNamed-3)...)
		before := heap()
		const sessions = 4000
		for range sessions {
			request, end := context.WithCancel(t.Context())
			opened, err := p.OpenExec(request, streaming.Target{Namespace: "ns", Pod: "p", Container: "c"}, command, streaming.Streams{Stdout: true})
			if err != nil {
				t.Fatal(err)
			}
			opened.Over(true)
			end()
		}
		synctest.Wait()
		if kept := p.commands.kept.Load(); kept != 0 {
			t.Errorf("%d bytes of commands are kept", kept)
		}
		if held := heap() - before; held > 8 {
			t.Errorf("%d sessions that podsync is done with hold %d MiB", sessions, held)
		}
		runtime.KeepAlive(p)
	})
}

// leaving is a podsync that is away now and then.
type leaving struct {
	podsyncv1.PodSyncServiceClient
	away func() bool
	gone chan struct{} // closed when it leaves the streams that there are
	// closed is closed when the connection is, by this process; nil never is.
	closed chan struct{}
}

var errClosed = rpcerr.FromStatus(status.Error(codes.Canceled, "grpc: the client connection is closing"))

// stream is one of leaving's, by which it is told of one session.
type stream struct {
	podsyncv1.PodSyncService_HoldExecClient
	of       *leaving
	ctx      context.Context
	answered bool
}

func (l *leaving) HoldExec(ctx context.Context, _ ...grpc.CallOption) (podsyncv1.PodSyncService_HoldExecClient, error) {
	select {
	case <-l.closed:
		return nil, errClosed
	default:
	}
	if l.away() {
		return nil, rpcerr.ErrUnavailable
	}
	return &stream{of: l, ctx: ctx}, nil
}

func (*stream) Send(*podsyncv1.HoldExecRequest) error { return nil }
func (*stream) CloseSend() error                      { return nil }

func (s *stream) Recv() (*podsyncv1.HoldExecResponse, error) {
	if !s.answered {
		s.answered = true
		return &podsyncv1.HoldExecResponse{ContainerId: "c1", BeganTicks: 1}, nil
	}
	select {
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case <-s.of.gone:
		return nil, rpcerr.ErrUnavailable
	case <-s.of.closed:
		return nil, errClosed
	}
}

// TestAStopOfTheGatewaySaysOfNoCommandThatItMayBeLeftIfPodsyncHearsOfIt: the end of the
// stream tells podsync, if it is there.
func TestAStopOfTheGatewaySaysOfNoCommandThatItMayBeLeftIfPodsyncHearsOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		left, away bool
		said       int
	}{
		"the session goes on":                     {false, false, 0},
		"podsync looks for the command":           {true, false, 0},
		"podsync is away":                         {false, true, 1},
		"podsync is away and the client has left": {true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := 0
				log := funcr.New(func(_, args string) {
					if strings.Contains(args, "may be left in its container") {
						said++
					}
				}, funcr.Options{})
				var away atomic.Bool
				l := &leaving{away: away.Load, gone: make(chan struct{}), closed: make(chan struct{})}
				h, _, err := (&Podsync{client: l}).holdExec(logr.NewContext(t.Context(), log), &podsyncv1.OpenExecRequest{Command: []string{"sh"}})
				if err != nil {
					t.Fatal(err)
				}
				if c.left {
					h.said(true)
				}
				if c.away {
					away.Store(true)
					close(l.gone)
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				close(l.closed)
				<-h.ctx.Done()
				synctest.Wait()
				if said != c.said {
					t.Errorf("it is said %d times", said)
				}
			})
		})
	}
}

func TestAPodsyncThatIsAwayIsWaitedForAsLongWheneverItLeft(t *testing.T) {
	for name, beforeClient := range map[string]bool{"left before the client": true, "left after the client": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				p := &Podsync{client: &leaving{away: away.Load, gone: make(chan struct{})}}
				h, _, err := p.holdExec(t.Context(), &podsyncv1.OpenExecRequest{Command: []string{"sh"}})
				if err != nil {
					t.Fatal(err)
				}
				leave := func() {
					away.Store(true)
					close(p.client.(*leaving).gone)
					synctest.Wait()
				}
				if beforeClient {
					leave()
					time.Sleep(2 * holdFor)
					h.said(true)
				} else {
					h.said(true)
					time.Sleep(2 * holdFor) // podsync is there, and waits for another session
					leave()
				}
				time.Sleep(holdFor - time.Second)
				if h.ctx.Err() != nil {
					t.Error("it is given up on too early")
				}
				time.Sleep(2 * time.Second)
				if h.ctx.Err() == nil {
					t.Error("it is waited for without end")
				}
			})
		})
	}
}

func TestASessionIsNamedToAPodsyncThatComesBackAsFarAsItsCommandIsLookedAt(t *testing.T) {
	opened := &podsyncv1.HoldExecResponse{ContainerId: "c1", BeganTicks: 7}
	var all commands
	for name, c := range map[string]struct {
		command []string
		kept    bool
	}{
		"short":              {[]string{"sh", "-c", "sleep 9"}, true},
		"as long as may be":  {append([]string{"sh"}, strings.Split(strings.Repeat("x", mostNamed-1), "")...), true},
		"too long":           {[]string{"sh", "-c", strings.Repeat("x", longestNamed)}, false},
		"too many arguments": {append([]string{"sh"}, make([]string, mostNamed)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			n := all.name(opened, c.command)
			resume := n.resume()
			if resume.GetContainerId() != "c1" || resume.GetBeganTicks() != 7 || resume.GetCommand()[0] != "sh" {
				t.Errorf("named as %v", resume)
			}
			if c.kept && !slices.Equal(resume.GetCommand(), c.command) {
				t.Errorf("the command is named as %q", resume.GetCommand())
			}
			if !c.kept && len(resume.GetCommand()) <= mostNamed {
				t.Errorf("a command that nobody looks at is named as %q", resume.GetCommand())
			}
			all.forget(n)
		})
	}
	if kept := all.kept.Load(); kept != 0 {
		t.Errorf("%d bytes count as kept though everything is forgotten", kept)
	}
}

func TestTheCommandsOfAllSessionsTakeABoundedAmount(t *testing.T) {
	opened, command := &podsyncv1.HoldExecResponse{ContainerId: "c1"}, []string{"sh", "-c", strings.Repeat("x", longestNamed-4)}
	var all commands
	var first named
	for i := range 2 * mostKept / longestNamed {
		n := all.name(opened, command)
		if i == 0 {
			first = n
		}
	}
	if kept := all.kept.Load(); kept > mostKept || kept < mostKept-2*longestNamed {
		t.Errorf("%d bytes are kept", kept)
	}
	if all.name(opened, command).command != nil {
		t.Error("a command is kept beyond the bound")
	}
	all.forget(first)
	if all.name(opened, command).command == nil {
		t.Error("the room of one that is forgotten is not used")
	}
}
