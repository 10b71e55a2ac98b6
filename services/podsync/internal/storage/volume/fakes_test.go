package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// fakeObjects is an Objects over maps.
type fakeObjects struct {
	mu      sync.Mutex
	maps    map[string]*v1.ConfigMap
	secrets map[string]*v1.Secret
	held    map[types.UID]int
	bundles []certificatesv1beta1.ClusterTrustBundle
	slow    map[string]chan struct{} // by namespace: reads of it wait
}

func (o *fakeObjects) Hold(pod *v1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[pod.UID]++
}

func (o *fakeObjects) Release(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, uid)
}

func (o *fakeObjects) ConfigMap(ctx context.Context, ns, name string) (*v1.ConfigMap, error) {
	o.mu.Lock()
	slow := o.slow[ns]
	o.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if cm := o.maps[ns+"/"+name]; cm != nil {
		return cm, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmap"}, name)
}

func (o *fakeObjects) Secret(_ context.Context, ns, name string) (*v1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.secrets[ns+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secret"}, name)
}

func (o *fakeObjects) TrustBundles(context.Context) ([]certificatesv1beta1.ClusterTrustBundle, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bundles, nil
}

// slowDown has reads of a namespace wait until end is called.
func (o *fakeObjects) slowDown(ns string) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	slow := make(chan struct{})
	o.slow = map[string]chan struct{}{ns: slow}
	return func() { close(slow) }
}

func (o *fakeObjects) setMap(name string, data map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.maps["ns/"+name] = &v1.ConfigMap{Data: data}
}

// tokens hands out numbered tokens that are due after an hour.
type tokens struct {
	mu       sync.Mutex
	n        int
	requests []serviceaccount.Request
}

func (t *tokens) Get(_ context.Context, r serviceaccount.Request) (serviceaccount.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	t.requests = append(t.requests, r)
	return serviceaccount.Token{Value: fmt.Sprintf("token-%d", t.n), Refresh: time.Now().Add(time.Hour)}, nil
}

func (t *tokens) Forget(types.UID) {}

type fixture struct {
	set     *Set
	objects *fakeObjects
	claims  *fakeClaims
	events  *events
	tokens  *tokens
	mounts  *mount.Fake
	root    string
	changed chan types.UID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		objects: &fakeObjects{maps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}, held: map[types.UID]int{}},
		claims:  newFakeClaims(), events: &events{}, tokens: &tokens{}, mounts: mount.NewFake(), root: t.TempDir(), changed: make(chan types.UID, 10),
	}
	f.set = f.restarted()
	return f
}

// restarted is the Set after a restart: the same disk, nothing in memory.
func (f *fixture) restarted() *Set {
	return New(Config{RootDir: f.root, TrustBundles: true}, Deps{
		Objects: f.objects, Claims: f.claims, Events: f.events, Tokens: f.tokens, Mounter: f.mounts,
		Pods: waiting(f.changed),
	})
}

// podWith has a container that mounts the volumes.
func podWith(volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid-1", Labels: map[string]string{"app": "x"}},
		Spec:       v1.PodSpec{ServiceAccountName: "sa", Volumes: volumes, Containers: []v1.Container{{Name: "c"}}},
	}
	for _, v := range volumes {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return pod
}

func configMapVolume(name, from string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: from},
	}}}
}

func emptyDirVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

// files reads a volume as a container sees it.
func (f *fixture) files(t *testing.T, volume string) map[string]string {
	t.Helper()
	dir, ok := f.set.HostPath("uid-1", volume)
	if !ok {
		t.Fatalf("volume %s is not set up", volume)
	}
	return readFiles(t, dir)
}

func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(data, path)
		seen[rel] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// runs lets the set run, in a bubble; stop ends it and wants no error.
func (f *fixture) runs(t *testing.T) (ctx context.Context, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.set.Run(ctx) }()
	return ctx, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// waiting gets the pods that are to be set up anew.
type waiting chan types.UID

func (w waiting) ObjectsChanged(uids []types.UID) {
	for _, uid := range uids {
		w <- uid
	}
}
