package fakecri_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a runtime with its clients, inside a bubble.
type node struct {
	*fakecri.Runtime
	t    *testing.T
	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
	img  runtimeapi.ImageServiceClient
}

// bubble runs a test in virtual time and ends everything afterwards.
func bubble(t *testing.T, cfg fakecri.Config, test func(ctx context.Context, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(cfg)
		conn, err := rt.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t.Context(), &node{
			Runtime: rt, t: t, conn: conn,
			cri: runtimeapi.NewRuntimeServiceClient(conn), img: runtimeapi.NewImageServiceClient(conn),
		})
		_ = conn.Close()
		rt.Close()
	})
}

func (n *node) sandbox(ctx context.Context, name string) (string, *runtimeapi.PodSandboxConfig) {
	n.t.Helper()
	cfg := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name}}
	resp, err := n.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetPodSandboxId(), cfg
}

func (n *node) container(ctx context.Context, sandbox string, cfg *runtimeapi.PodSandboxConfig, name, image string, attempt uint32) string {
	n.t.Helper()
	resp, err := n.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: cfg,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image},
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetContainerId()
}

func (n *node) start(ctx context.Context, id string) {
	n.t.Helper()
	if _, err := n.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) status(ctx context.Context, id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	resp, err := n.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetStatus()
}

const img = "registry.local/app:1"

func TestAJobRunsItsScriptInVirtualTime(t *testing.T) {
	cfg := fakecri.Config{Images: []string{img}, Scripts: map[string]fakecri.Script{img: fakecri.Sequence(
		fakecri.Run{For: time.Hour, Code: 3}, fakecri.Run{For: time.Minute, Code: 0},
	)}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		sb, pc := n.sandbox(ctx, "p")
		first := n.container(ctx, sb, pc, "c", img, 0)
		n.start(ctx, first)
		time.Sleep(time.Hour - time.Second)
		if st := n.status(ctx, first); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("one second early: %v", st)
		}
		time.Sleep(2 * time.Second)
		st := n.status(ctx, first)
		if st.GetExitCode() != 3 || st.GetReason() != "Error" || time.Duration(st.GetFinishedAt()-st.GetStartedAt()) != time.Hour {
			t.Fatalf("after an hour: %v", st)
		}
		second := n.container(ctx, sb, pc, "c", img, 1)
		n.start(ctx, second)
		time.Sleep(2 * time.Minute)
		if st := n.status(ctx, second); st.GetReason() != "Completed" || st.GetExitCode() != 0 {
			t.Fatalf("second attempt: %v", st)
		}
	})
}

func TestAContainerThatIgnoresTermIsKilledAtItsTimeout(t *testing.T) {
	cfg := fakecri.Config{Images: []string{img}, Script: func(p fakecri.Process) *fakecri.Script {
		switch p.Container.GetMetadata().GetName() {
		case "deaf":
			return &fakecri.Script{OnTerm: fakecri.Term{Ignore: true}}
		case "slow":
			return &fakecri.Script{OnTerm: fakecri.Term{After: 4 * time.Second, Code: 143}}
		}
		return nil
	}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		sb, pc := n.sandbox(ctx, "p")
		for _, tc := range []struct {
			name   string
			took   time.Duration
			code   int32
			signal string
		}{{"deaf", 10 * time.Second, 137, "KILL"}, {"slow", 4 * time.Second, 143, "TERM"}, {"good", 0, 0, "TERM"}} {
			id := n.container(ctx, sb, pc, tc.name, img, 0)
			n.start(ctx, id)
			began := time.Now()
			if _, err := n.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != tc.took {
				t.Errorf("%s: stopping took %v, want %v", tc.name, took, tc.took)
			}
			if st := n.status(ctx, id); st.GetExitCode() != tc.code {
				t.Errorf("%s: exit code %d, want %d", tc.name, st.GetExitCode(), tc.code)
			}
			last := n.History()[len(n.History())-1]
			if last.Signal != tc.signal || last.Grace != 10*time.Second || !last.SignalledAt.Equal(began) {
				t.Errorf("%s: transition %+v", tc.name, last)
			}
		}
	})
}

func TestFaultsHangDelayAndLoseResponses(t *testing.T) {
	var fault fakecri.Fault
	cfg := fakecri.Config{Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
		if method == "RunPodSandbox" {
			return fault
		}
		return fakecri.Fault{}
	}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		try := func(name string, f fakecri.Fault, want codes.Code, took time.Duration, sandboxes int) {
			t.Helper()
			fault = f
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			began := time.Now()
			_, err := n.cri.RunPodSandbox(short, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: name},
			}})
			synctest.Wait()
			if status.Code(err) != want || time.Since(began) != took || len(n.Snapshot().Sandboxes) != sandboxes {
				t.Errorf("%s: %v after %v, %d sandboxes", name, err, time.Since(began), len(n.Snapshot().Sandboxes))
			}
		}
		try("refused", fakecri.Fault{Err: status.Error(codes.ResourceExhausted, "no")}, codes.ResourceExhausted, 0, 0)
		try("hung", fakecri.Fault{Hang: true}, codes.DeadlineExceeded, time.Minute, 0)
		try("late", fakecri.Fault{Delay: 5 * time.Second}, codes.OK, 5*time.Second, 1)
		try("lost", fakecri.Fault{After: true}, codes.Unavailable, 0, 2)
		try("lost and hung", fakecri.Fault{After: true, Hang: true}, codes.DeadlineExceeded, time.Minute, 3)
		if n.Calls()["RunPodSandbox"] != 5 || len(n.CallLog()) != 5 {
			t.Errorf("calls %v, log %v", n.Calls(), n.CallLog())
		}
	})
}

func TestRandomFaultsReplayFromTheirSeed(t *testing.T) {
	rates := fakecri.Rates{Err: .2, Hang: .1, LostResponse: .2, Delay: .5, DropEvent: .3, DelayEvent: .3}
	draw := func(seed int64, methods ...string) []fakecri.Fault {
		f := fakecri.RandomFaults(seed, rates)
		var out []fakecri.Fault
		for range 50 {
			for _, m := range methods {
				if got := f(context.Background(), m, &runtimeapi.StartContainerRequest{ContainerId: "x"}); m == "StartContainer" {
					out = append(out, got)
				}
			}
		}
		return out
	}
	a, b, c := draw(7, "StartContainer"), draw(7, "StopContainer", "StartContainer"), draw(8, "StartContainer")
	same, bad := true, 0
	for i := range a {
		if (a[i].Err == nil) != (b[i].Err == nil) || a[i].Delay != b[i].Delay || a[i].After != b[i].After {
			t.Fatalf("call %d: %+v and %+v", i, a[i], b[i])
		}
		same = same && a[i].Delay == c[i].Delay
		if a[i].Err != nil || a[i].After {
			bad++
		}
	}
	if same || bad == 0 || bad == len(a) {
		t.Errorf("another seed gives the same: %v; %d of %d calls bad", same, bad, len(a))
	}
}

func TestTheRuntimeGoesAwayWhileContainersRunOn(t *testing.T) {
	cfg := fakecri.Config{Images: []string{img}, Scripts: map[string]fakecri.Script{img: fakecri.Exits(time.Minute, 0)}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		sb, pc := n.sandbox(ctx, "p")
		id := n.container(ctx, sb, pc, "c", img, 0)
		n.start(ctx, id)
		n.SetDown(true)
		if _, err := n.cri.Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
			t.Fatalf("while down: %v", err)
		}
		time.Sleep(2 * time.Minute)
		n.SetDown(false)
		_, err := n.cri.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if st := n.status(ctx, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || time.Duration(st.GetFinishedAt()-st.GetStartedAt()) != time.Minute {
			t.Fatalf("after it came back: %v", st)
		}
	})
}

func TestTheHookSeesEveryTransitionAndTheStateThen(t *testing.T) {
	var steps []string
	var live int
	cfg := fakecri.Config{Images: []string{img}, OnTransition: func(tr fakecri.Transition, v fakecri.View) {
		steps = append(steps, tr.Kind+" "+tr.Name+" "+tr.From+">"+tr.To+" "+tr.Cause)
		live = max(live, len(v.Live("uid-p", "c")))
	}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		sb, pc := n.sandbox(ctx, "p")
		n.start(ctx, n.container(ctx, sb, pc, "c", img, 0))
		if _, err := n.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
	})
	want := []string{
		"image " + img + " >Present New", "network  >Up RunPodSandbox", "sandbox  >Ready RunPodSandbox", "container c >Created CreateContainer",
		"container c Created>Running StartContainer", "container c Running>Exited RemovePodSandbox", "sandbox  Ready>NotReady RemovePodSandbox",
		"network  Up>Down RemovePodSandbox", "container c Exited>Removed RemovePodSandbox", "sandbox  NotReady>Removed RemovePodSandbox",
	}
	if len(steps) != len(want) || live != 1 {
		t.Fatalf("live %d, steps %q", live, steps)
	}
	for i := range want {
		if steps[i] != want[i] {
			t.Errorf("step %d: %q, want %q", i, steps[i], want[i])
		}
	}
}

func TestAnImageThatNeedsCredentialsIsPulledOnlyWithThem(t *testing.T) {
	cfg := fakecri.Config{Registry: map[string]fakecri.RemoteImage{img: {NeedAuth: true, PullDelay: 3 * time.Second, User: "1000"}}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		spec := &runtimeapi.ImageSpec{Image: img}
		if _, err := n.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec}); err == nil {
			t.Fatal("pulled without credentials")
		}
		began := time.Now()
		resp, err := n.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: &runtimeapi.AuthConfig{Username: "me", Password: "x"}})
		if err != nil || time.Since(began) != 3*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		st, err := n.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: resp.GetImageRef()}})
		if err != nil || st.GetImage().GetUid().GetValue() != 1000 || st.GetImage().GetRepoTags()[0] != img {
			t.Fatalf("%v, %v", st, err)
		}
		if pulls := n.Pulls(); len(pulls) != 2 || pulls[1].GetAuth().GetUsername() != "me" {
			t.Errorf("recorded %v", pulls)
		}
	})
}

func TestAnEventIsDroppedDoubledAndDelayedAsTheFaultSays(t *testing.T) {
	cfg := fakecri.Config{Faults: func(_ context.Context, method string, req any) fakecri.Fault {
		ev, _ := req.(*runtimeapi.ContainerEventResponse)
		switch {
		case method != "event":
			return fakecri.Fault{}
		case ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
			return fakecri.Fault{DelayEvent: time.Second}
		case ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
			return fakecri.Fault{DupEvent: true}
		case ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
			return fakecri.Fault{DropEvent: true}
		}
		return fakecri.Fault{}
	}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		ctx, cancel := context.WithCancel(ctx)
		stream, err := n.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		sb, _ := n.sandbox(ctx, "p")
		time.Sleep(2 * time.Second)
		if _, err := n.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
		var got []runtimeapi.ContainerEventType
		for range 4 {
			ev, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev.GetContainerEventType())
		}
		want := [4]runtimeapi.ContainerEventType{1, 1, 0, 3}
		if [4]runtimeapi.ContainerEventType(got) != want {
			t.Errorf("got %v, want %v", got, want)
		}
		cancel()
	})
}

func TestEventsAfterASubscriberWentAreLostAtFirst(t *testing.T) {
	bubble(t, fakecri.Config{}, func(ctx context.Context, n *node) {
		subscribe := func() (runtimeapi.RuntimeService_GetContainerEventsClient, context.CancelFunc) {
			t.Helper()
			ctx, cancel := context.WithCancel(ctx)
			stream, err := n.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return stream, cancel
		}
		_, leave := subscribe()
		leave()
		synctest.Wait()
		n.sandbox(ctx, "lost")
		time.Sleep(time.Second)
		kept, _ := n.sandbox(ctx, "kept")
		stream, leave := subscribe()
		ev, err := stream.Recv()
		if err != nil || ev.GetContainerId() != kept {
			t.Errorf("first event %v, %v", ev, err)
		}
		leave()
	})
}

func TestAStreamOfEventsThatHangsSaysNothingAndTheNextOneWorks(t *testing.T) {
	bubble(t, fakecri.Config{}, func(ctx context.Context, n *node) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		hung, err := n.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{})
		go func() {
			if _, err := hung.Recv(); err == nil {
				close(heard)
			}
		}()
		synctest.Wait()
		n.HangEvents()
		n.sandbox(ctx, "unheard")
		next, err := n.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		id, _ := n.sandbox(ctx, "heard")
		if ev, err := next.Recv(); err != nil || ev.GetContainerId() != id {
			t.Errorf("the next stream says %v, %v", ev, err)
		}
		synctest.Wait()
		select {
		case <-heard:
			t.Error("the stream that hangs said something")
		default:
		}
	})
}
