package inventory

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// crowded is a runtime that lists so many items at once at most; pods holds the
// states of the sandboxes and containers by pod, true for what runs.
type crowded struct {
	most                  int
	sandboxes, containers map[string]bool
	broken                error // of lists of one pod
}

func labels(uid string) map[string]string { return map[string]string{cri.LabelPodUID: uid} }

func within[T any](all []T, most int) ([]T, error) {
	if len(all) > most {
		return nil, status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")
	}
	return all, nil
}

func (c *crowded) list(uid string, running bool) (out []*runtimeapi.PodSandbox) {
	for pod, runs := range c.sandboxes {
		if (uid == "" || pod == uid) && (runs || !running) {
			out = append(out, &runtimeapi.PodSandbox{Id: "s-" + pod, Labels: labels(pod)})
		}
	}
	return out
}

func (c *crowded) listContainers(uid string, running bool) (out []*runtimeapi.Container) {
	for pod, runs := range c.containers {
		if (uid == "" || pod == uid) && (runs || !running) {
			out = append(out, &runtimeapi.Container{Id: "c-" + pod, Labels: labels(pod)})
		}
	}
	return out
}

func (c *crowded) ListSandboxes(_ context.Context, uid string) ([]*runtimeapi.PodSandbox, error) {
	if uid != "" && c.broken != nil {
		return nil, c.broken
	}
	return within(c.list(uid, false), c.most)
}

func (c *crowded) ListContainers(_ context.Context, uid string) ([]*runtimeapi.Container, error) {
	return within(c.listContainers(uid, false), c.most)
}

func (c *crowded) ReadySandboxes(context.Context) ([]*runtimeapi.PodSandbox, error) {
	return within(c.list("", true), c.most)
}

func (c *crowded) RunningContainers(context.Context) ([]*runtimeapi.Container, error) {
	return within(c.listContainers("", true), c.most)
}

func TestWhatDoesNotFitIntoOneMessageIsListedPodByPod(t *testing.T) {
	known := func() ([]types.UID, error) { return []types.UID{"known", "gone"}, nil }
	for name, c := range map[string]struct {
		runtime               crowded
		sandboxes, containers []string
	}{
		"all fits": {
			crowded{most: 9, sandboxes: map[string]bool{"ended": false, "known": false}, containers: map[string]bool{"ended": false}},
			[]string{"s-ended", "s-known"},
			[]string{"c-ended"},
		},
		"too many sandboxes": {
			crowded{most: 2, sandboxes: map[string]bool{"ready": true, "known": false, "listed": false}, containers: map[string]bool{"listed": false}},
			[]string{"s-known", "s-listed", "s-ready"},
			[]string{"c-listed"},
		},
		"too many containers": {
			crowded{most: 2, sandboxes: map[string]bool{"listed": false}, containers: map[string]bool{"running": true, "known": false, "listed": false}},
			[]string{"s-listed"},
			[]string{"c-known", "c-listed", "c-running"},
		},
		"too many even of those that run": {
			crowded{most: 1, sandboxes: map[string]bool{"ready": true, "known": true}, containers: map[string]bool{"ready": false}},
			[]string{"s-known", "s-ready"},
			[]string{"c-ready"},
		},
	} {
		list, err := All(t.Context(), &c.runtime, known)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got, gotContainers []string
		for _, s := range list.Sandboxes {
			got = append(got, s.GetId())
		}
		for _, s := range list.Containers {
			gotContainers = append(gotContainers, s.GetId())
		}
		slices.Sort(got)
		slices.Sort(gotContainers)
		if !slices.Equal(got, c.sandboxes) || !slices.Equal(gotContainers, c.containers) {
			t.Errorf("%s: %v and %v, want %v and %v", name, got, gotContainers, c.sandboxes, c.containers)
		}
		all, err := Containers(t.Context(), &c.runtime, known)
		for i := range all.Containers {
			if err != nil || !slices.Contains(c.containers, all.Containers[i].GetId()) {
				t.Errorf("%s: alone %v, %v", name, all, err)
			}
		}
	}
}

// What is left out is named: nobody takes it for gone, and the rest goes on.
func TestAPodThatIsTooLargeByItselfIsNamedAndTheRestIsListed(t *testing.T) {
	runtime := large{crowded{most: 1, sandboxes: map[string]bool{"a": true, "large": true}, containers: map[string]bool{"a": true, "large": true}}}
	known := func() ([]types.UID, error) { return []types.UID{"a", "large"}, nil }
	list, err := All(t.Context(), &runtime, known)
	if err != nil || len(list.Sandboxes) != 2 || len(list.Containers) != 1 || list.Containers[0].GetId() != "c-a" || len(list.TooLarge) != 1 || !cri.IsTooLarge(list.TooLarge["large"]) {
		t.Errorf("%+v, %v", list, err)
	}
	list, err = Containers(t.Context(), &runtime, known)
	if err != nil || len(list.Containers) != 1 || list.TooLarge["large"] == nil {
		t.Errorf("containers alone: %+v, %v", list, err)
	}
}

// large is a runtime of which one pod's containers do not fit.
type large struct{ crowded }

func (l *large) ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error) {
	if uid == "large" {
		return within(make([]*runtimeapi.Container, 2), 1)
	}
	return l.crowded.ListContainers(ctx, uid)
}

// A part taken for all would have what is not in it counted as gone.
func TestAPartIsNeverGivenAsIfItWereAll(t *testing.T) {
	away := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	runtime := crowded{most: 1, sandboxes: map[string]bool{"a": true, "b": false}, broken: away}
	none := func() ([]types.UID, error) { return nil, nil }
	if list, err := All(t.Context(), &runtime, none); err == nil || list.Sandboxes != nil {
		t.Errorf("a pod that cannot be listed: %v, %v", list, err)
	}
	unread := errors.New("too many open files")
	runtime.broken = nil
	if list, err := All(t.Context(), &runtime, func() ([]types.UID, error) { return nil, unread }); !errors.Is(err, unread) || list.Sandboxes != nil {
		t.Errorf("directories that cannot be read: %v, %v", list, err)
	}
}

func TestPodsAreFoundByTheirDirectories(t *testing.T) {
	pods, logs := filepath.Join(t.TempDir(), "pods"), t.TempDir()
	for _, dir := range []string{filepath.Join(pods, "u1"), filepath.Join(logs, "ns_name_u2"), filepath.Join(logs, "ns_name_u1"), filepath.Join(pods, "a_b"), filepath.Join(logs, "ns_name_c_d")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	uids, err := OnDisk(pods, logs)
	found := map[types.UID]bool{}
	for _, uid := range uids {
		found[uid] = true
	}
	if err != nil || !maps.Equal(found, map[types.UID]bool{"u1": true, "u2": true, "a_b": true, "c_d": true}) {
		t.Errorf("%v, %v", uids, err)
	}
	if uids, err := OnDisk(filepath.Join(pods, "not-there"), ""); len(uids) > 0 || err != nil {
		t.Errorf("without directories: %v, %v", uids, err)
	}
}
