package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// attacher stands in for nodestatus, which writes into the Node which volumes are in use,
// and for those who attach volumes to the node and detach them.
type attacher struct {
	w *world

	mu  sync.Mutex
	due map[string]time.Time // when a volume that is wanted is attached
	// used is what podsync has said last.
	used map[string]bool
}

func newAttacher(w *world) *attacher {
	return &attacher{w: w, due: map[string]time.Time{}, used: map[string]bool{}}
}

// onNode is what Kubernetes calls the volume of a claim on the node.
func (p *driverPlan) onNode(claim string) string {
	return "kubernetes.io/csi/" + p.name + "^h-" + claim
}

// disk is what a volume of that name is: its driver and its handle.
func disk(onNode string) (driver, handle string) {
	driver, handle, _ = strings.Cut(strings.TrimPrefix(onNode, "kubernetes.io/csi/"), "^")
	return driver, handle
}

// lag is how long something about a volume takes, most long: always the same.
func (w *world) lag(about string, most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, w.seed, about)
	return time.Duration(h.Sum64() % uint64(most)) //nolint:gosec // most is positive
}

// node changes the Node's status.
func (a *attacher) node(change func(*v1.NodeStatus)) {
	nodes := a.w.api.Admin().CoreV1().Nodes()
	a.w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(a.w.t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&node.Status)
		_, err = nodes.UpdateStatus(a.w.t.Context(), node, metav1.UpdateOptions{})
		return err
	}))
}

// uses writes into the Node which volumes are in use.
func (a *attacher) uses(names map[string]bool) {
	a.w.judge.inUse(names)
	a.node(func(s *v1.NodeStatus) {
		s.VolumesInUse = nil
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s.VolumesInUse = append(s.VolumesInUse, v1.UniqueVolumeName(name))
		}
	})
	a.w.tell("IN USE", "volumes", slices.Sorted(maps.Keys(names)))
}

// follow writes what one life of podsync says.
func (a *attacher) follow(ctx context.Context, server podsyncv1.PodSyncServiceServer) {
	for ctx.Err() == nil {
		_ = server.WatchVolumesInUse(&podsyncv1.WatchVolumesInUseRequest{}, &inUseStream{a: a, ctx: ctx})
		sleep(ctx, time.Second)
	}
}

// inUseStream takes what podsync says is in use.
type inUseStream struct {
	grpc.ServerStream // nil: no more than what is here is used of it
	a                 *attacher
	ctx               context.Context //nolint:containedctx // a stream has one
}

func (s *inUseStream) Context() context.Context { return s.ctx }

func (s *inUseStream) Send(f *podsyncv1.WatchVolumesInUseResponse) error {
	sleep(s.ctx, s.a.w.lag(fmt.Sprint("in use ", f.GetEpoch(), f.GetRevision()), 2*time.Second))
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if f.GetSnapshot() {
		clear(s.a.used)
	}
	for _, name := range f.GetNames() {
		s.a.used[name] = true
	}
	for _, name := range f.GetRemovedNames() {
		delete(s.a.used, name)
	}
	s.a.uses(maps.Clone(s.a.used))
	return nil
}

// run attaches what pods want, and detaches what none wants and is not in use.
func (a *attacher) run() {
	for !a.w.closing.Load() {
		time.Sleep(2 * time.Second)
		a.resizes()
		a.mu.Lock()
		a.step()
		a.mu.Unlock()
	}
}

func (a *attacher) step() {
	wanted := a.wanted()
	node := a.w.api.Node(nodeName)
	attached := map[string]bool{}
	for _, v := range node.Status.VolumesAttached {
		attached[string(v.Name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		due, begun := a.due[name]
		switch {
		case attached[name]:
		case !begun:
			a.due[name] = time.Now().Add(a.w.lag("attach "+name, 20*time.Second))
		case !time.Now().Before(due):
			delete(a.due, name)
			a.attach(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(attached)) {
		if !wanted[name] && !slices.Contains(node.Status.VolumesInUse, v1.UniqueVolumeName(name)) {
			a.detach(name)
		}
	}
}

// wanted are the volumes of pods that have not ended, which must be attached.
func (a *attacher) wanted() map[string]bool {
	names := map[string]bool{}
	for _, pod := range a.w.api.Pods() {
		if ended(pod) {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			claim := v.PersistentVolumeClaim.ClaimName
			if p := a.w.scenario.csi.claims[claim]; p != nil && p.attach && !a.w.judge.boundAt(claim).IsZero() {
				names[p.onNode(claim)] = true
			}
		}
	}
	return names
}

func attachmentOf(name string) string {
	driver, handle := disk(name)
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+nodeName)))
}

func (a *attacher) attach(name string) {
	driver, handle := disk(name)
	pv := strings.Replace(handle, "h-", "of-", 1)
	all := a.w.api.Admin().StorageV1().VolumeAttachments()
	made, err := all.Create(a.w.t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentOf(name)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: nodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{})
	a.w.must(err)
	made.Status.Attached = true
	_, err = all.UpdateStatus(a.w.t.Context(), made, metav1.UpdateOptions{})
	a.w.must(err)
	a.w.judge.attached(name, true)
	a.node(func(s *v1.NodeStatus) {
		s.VolumesAttached = append(s.VolumesAttached, v1.AttachedVolume{Name: v1.UniqueVolumeName(name)})
	})
	a.w.tell("ATTACHED", "volume", name)
}

func (a *attacher) detach(name string) {
	a.w.judge.attached(name, false)
	a.node(func(s *v1.NodeStatus) {
		s.VolumesAttached = slices.DeleteFunc(s.VolumesAttached, func(v v1.AttachedVolume) bool { return string(v.Name) == name })
	})
	a.w.must(a.w.api.Admin().StorageV1().VolumeAttachments().Delete(a.w.t.Context(), attachmentOf(name), metav1.DeleteOptions{}))
	a.w.tell("DETACHED", "volume", name)
}
