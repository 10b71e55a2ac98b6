package cri

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestEveryCallEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Faults: func(context.Context, string, any) fakecri.Fault { return fakecri.Fault{Hang: true} }})
		defer rt.Close()
		conn, err := rt.Dial(t.Context(), DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		reg := prometheus.NewRegistry()
		c := New(Config{RequestTimeout: time.Minute, LookTimeout: 10 * time.Second}, conn, conn, NewMetrics(reg))
		for name, tc := range map[string]struct {
			call func(context.Context) error
			ends time.Duration
		}{
			"list of all": {func(ctx context.Context) error { _, err := c.ListSandboxes(ctx, ""); return err }, time.Minute},
			"list":        {func(ctx context.Context) error { _, err := c.ListSandboxes(ctx, "uid"); return err }, 10 * time.Second},
			"run": {func(ctx context.Context) error {
				_, err := c.RunSandbox(ctx, &runtimeapi.PodSandboxConfig{}, "")
				return err
			}, 2 * time.Minute},
			"start": {func(ctx context.Context) error { return c.StartContainer(ctx, "x") }, time.Minute},
			"stop":  {func(ctx context.Context) error { return c.StopContainer(ctx, "x", 30*time.Second) }, 90 * time.Second},
			"pull": {func(ctx context.Context) error { // of itself it has no end
				ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
				defer cancel()
				_, err := c.PullImage(ctx, nil, nil, nil)
				return err
			}, 24 * time.Hour},
			"exec": {func(ctx context.Context) error { _, err := c.ExecSync(ctx, "x", nil, 3*time.Second); return err }, time.Minute + 3*time.Second},
		} {
			began := time.Now()
			if err := tc.call(t.Context()); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != tc.ends {
				t.Errorf("%s ended after %v with %v, want %v", name, time.Since(began), err, tc.ends)
			}
		}
		if n := testutil.CollectAndCount(reg, "kubelet_runtime_operations_errors_total"); n != 6 {
			t.Errorf("%d operations are counted as failed", n)
		}
	})
}

func TestWhatIsGoneWasRemoved(t *testing.T) {
	if err := exceptNotFound(status.Error(codes.NotFound, "x")); err != nil {
		t.Error(err)
	}
	if err := exceptNotFound(status.Error(codes.Unknown, "x")); err == nil {
		t.Error("another error was dropped")
	}
}

func TestATakenNameIsRecognised(t *testing.T) {
	for text, want := range map[string]bool{
		`failed to reserve sandbox name "a": name "a" is reserved for "b"`:                   true,
		`the container name "a" is already in use by b. You have to remove that container`:   true,
		`error creating sandbox: pod name is reserved`:                                       true,
		`failed to create containerd task: not enough memory is available for the new thing`: false,
	} {
		if got := IsNameTaken(errors.New(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if IsNameTaken(nil) || !IsNameTaken(status.Error(codes.AlreadyExists, "x")) {
		t.Error("nil or AlreadyExists is taken wrongly")
	}
}

func TestAnnotationsOfOthersAreTakenWithCare(t *testing.T) {
	if _, ok := RestartCount(map[string]string{AnnotationRestartCount: "-1"}); ok {
		t.Error("a negative restart count was taken")
	}
	if n, ok := RestartCount(map[string]string{AnnotationRestartCount: "7"}); !ok || n != 7 {
		t.Errorf("restart count %d %v", n, ok)
	}
	if d := Backoff(map[string]string{AnnotationBackoff: "20s"}); d != 20*time.Second {
		t.Errorf("back-off %v", d)
	}
	if d := Backoff(map[string]string{AnnotationBackoff: "never"}); d != 0 {
		t.Errorf("back-off %v", d)
	}
	if g := GraceSeconds(map[string]string{AnnotationGracePeriod: "30", AnnotationDeletionGracePeriod: "5"}); g != 5 {
		t.Errorf("grace period %d", g)
	}
}

// deadlines is a connection that notes the deadline of each call.
type deadlines struct {
	grpc.ClientConnInterface
	bounded []bool
}

func (d *deadlines) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	_, ok := ctx.Deadline()
	d.bounded = append(d.bounded, ok)
	return &command{conn: &commands{}, ctx: ctx}, nil
}

func TestACommandWithoutATimeoutIsBoundedByItsCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &deadlines{}
		c := New(Config{}, conn, conn, nil)
		for _, timeout := range []time.Duration{0, time.Second} {
			if _, err := c.ExecSync(context.Background(), "id", []string{"true"}, timeout); err != nil {
				t.Fatal(err)
			}
		}
		if want := []bool{false, true}; !slices.Equal(conn.bounded, want) {
			t.Errorf("bounded: %v, want %v", conn.bounded, want)
		}
	})
}

func TestAPreStopHookIsReadBack(t *testing.T) {
	for raw, want := range map[string]int64{`{"sleep":{"seconds":3}}`: 3, "{": 0} {
		h := PreStop(map[string]string{AnnotationPreStopHandler: raw})
		if (h != nil) != (want > 0) || h != nil && h.Sleep.Seconds != want {
			t.Errorf("%s: %+v", raw, h)
		}
	}
	if h := PreStop(nil); h != nil {
		t.Errorf("out of nothing: %+v", h)
	}
}
