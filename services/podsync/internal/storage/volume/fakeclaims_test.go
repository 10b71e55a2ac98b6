package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
)

// fakeClaims is a Claims over maps.
type fakeClaims struct {
	mu      sync.Mutex
	away    error
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	node    *v1.Node
	awaited []string
	reads   int
}

func newFakeClaims() *fakeClaims {
	return &fakeClaims{
		claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{},
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.LabelHostname: "n"}}},
	}
}

func readFake[T any](c *fakeClaims, from map[string]*T, resource, name string) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.away != nil {
		return nil, c.away
	}
	if o := from[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (c *fakeClaims) Claim(_ context.Context, _ types.UID, _, name string) (*v1.PersistentVolumeClaim, error) {
	return readFake(c, c.claims, "persistentvolumeclaims", name)
}

func (c *fakeClaims) PersistentVolume(_ context.Context, _ types.UID, _, name string) (*v1.PersistentVolume, error) {
	return readFake(c, c.volumes, "persistentvolumes", name)
}

func (c *fakeClaims) Await(uid types.UID, namespace string, key objects.Key, seen runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited = append(c.awaited, fmt.Sprintf("%s: %s of %s, seen: %v", uid, key, namespace, seen != nil))
}

func (c *fakeClaims) Node(context.Context) (*v1.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.away
}

// waits are what was awaited since the last call.
func (c *fakeClaims) waits() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.awaited
	c.awaited = nil
	return list
}

func (c *fakeClaims) setAway(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
}

// bind makes a claim and the volume that it is bound to.
func (f *fixture) bind(claim, pv string, source v1.PersistentVolumeSource) *v1.PersistentVolume {
	f.claims.mu.Lock()
	defer f.claims.mu.Unlock()
	uid := types.UID("uid of " + claim)
	f.claims.claims[claim] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: claim, UID: uid},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: pv}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	f.claims.volumes[pv] = &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: source, ClaimRef: &v1.ObjectReference{UID: uid}},
	}
	return f.claims.volumes[pv]
}

func hostPathPV(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
}

func localPV(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}
}

func claimVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// named gives a pod another name and UID.
func named(pod *v1.Pod, name string) *v1.Pod {
	pod.Name, pod.UID = name, types.UID("uid-"+name)
	return pod
}

// events keeps what pods are told.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) Pod(pod *v1.Pod, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, pod.Name+": "+reason+": "+message)
}

func (e *events) Volume(pv *v1.PersistentVolume, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, "volume "+pv.Name+": "+reason+": "+message)
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// fails wants an error that says something.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func ownedBy(uid types.UID, controller *bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid, Controller: controller}
}
