package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/host/plugins"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const driverOf = "csi.example.com"

// cluster is an apiserver with one CSIDriver and some secrets.
type cluster struct {
	mu      sync.Mutex // of driver, err and asked, where they change while they are read
	asked   int        // how often for driver
	driver  *storagev1.CSIDriver
	secrets map[string]map[string][]byte
	err     error
	// attachments are those of volumes, by name.
	attachments map[string]storagev1.VolumeAttachmentStatus
	// detaching: they are being deleted.
	detaching bool
}

func (c *cluster) set(driver *storagev1.CSIDriver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.driver = driver
}

// isAsked says whether the driver was read.
func (c *cluster) isAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked > 0
}

// fail has what is read of the driver fail.
func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cluster) VolumeAttachment(_ context.Context, _ types.UID, _, name string) (*storagev1.VolumeAttachment, error) {
	if status, ok := c.attachments[name]; ok {
		a := &storagev1.VolumeAttachment{Status: status}
		if c.detaching {
			a.DeletionTimestamp = &metav1.Time{}
		}
		return a, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: storagev1.GroupName, Resource: "volumeattachments"}, name)
}

// nodeObject is the Node as it is known.
type nodeObject struct{ atomic.Pointer[v1.Node] }

func (n *nodeObject) Object() *v1.Node { return n.Load() }

func (c *cluster) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	switch {
	case c.err != nil:
		return nil, c.err
	case c.driver == nil || c.driver.Name != name:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "csidriver"}, name)
	}
	return c.driver, nil
}

func (c *cluster) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if data, ok := c.secrets[namespace+"/"+name]; ok {
		return &v1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

type fixedTokens struct{}

func (fixedTokens) Get(_ context.Context, r serviceaccount.Request) (serviceaccount.Token, error) {
	return serviceaccount.Token{Value: fmt.Sprint("token of ", r.ServiceAccount, " for ", r.Audience, " ", r.ExpirationSeconds), Expires: time.Unix(1e9, 0)}, nil
}

// woken are the pods that were to be worked on anew.
type woken chan types.UID

func (w woken) ObjectsChanged(uids []types.UID) {
	for _, uid := range uids {
		w <- uid
	}
}

// bench is a node with one driver.
type bench struct {
	*Volumes
	root    string
	cluster *cluster
	driver  *fakecsi.Driver
	mounts  *mount.Fake
	plugin  plugins.Plugin
	woken   woken
	// kill ends the driver, whose sockets are left, and serve begins it anew.
	kill, serve func()
	node        nodeObject

	mu     sync.Mutex
	faults map[string]func(ctx context.Context) error
	disks  Disks // of a podsync that is started anew, as is
	counts *metrics.Metrics
}

func (b *bench) fault(at string, f func(ctx context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[at] = f
}

// newBench is a node on which the driver runs that is not registered yet.
func newBench(t *testing.T, change func(*fakecsi.Config)) *bench {
	t.Helper()
	b := &bench{
		root: t.TempDir(), mounts: mount.NewFake(), woken: make(woken, 10), faults: map[string]func(context.Context) error{},
		cluster: &cluster{driver: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverOf},
			Spec:       storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}},
		}},
	}
	cfg := fakecsi.Config{
		Name: driverOf, NodeID: "node-1", Unmount: b.mounts.Unmount, Mounted: b.mounts.Mounted,
		Mount:  func(volume, target string, _ bool) error { return b.mounts.Bind(volume, target) },
		Device: func(volume, target string) error { return os.WriteFile(target, []byte(volume), 0o600) },
		Bind:   func(staged, target string, _ bool) error { return b.mounts.Bind(staged, target) },
		Fault: func(ctx context.Context, at string) error {
			b.mu.Lock()
			f := b.faults[at]
			b.mu.Unlock()
			if f == nil {
				return nil
			}
			return f(ctx)
		},
	}
	if change != nil {
		change(&cfg)
	}
	b.driver = fakecsi.New(cfg)
	sockets, err := os.MkdirTemp("", "csi") // the test's own name may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	b.serve = func() {
		if b.kill, err = b.driver.Serve(sockets, sockets); err != nil {
			t.Fatal(err)
		}
	}
	b.serve()
	t.Cleanup(func() { b.kill() })
	b.plugin = plugins.Plugin{Name: driverOf, Endpoint: filepath.Join(sockets, driverOf+".sock"), Versions: []string{"1.0.0"}}
	b.Volumes = b.restarted(t)
	return b
}

// restarted is a podsync that knows nothing but what is on the disk.
func (b *bench) restarted(t *testing.T) *Volumes {
	t.Helper()
	c := New(Config{RootDir: b.root, NodeName: "n1", Timeout: time.Minute}, Deps{Objects: b.cluster, Tokens: fixedTokens{}, Node: &b.node, Mounter: b.mounts, Pods: b.woken, Disks: b.disks, Metrics: b.counts})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (b *bench) register(t *testing.T) *bench {
	t.Helper()
	if err := b.Register(t.Context(), b.plugin); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) dir() string {
	return filepath.Join(b.root, "pods", "uid-1", "volumes", "kubernetes.io~csi", "v")
}

func (b *bench) request() volume.Request {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid-1"},
		Spec: v1.PodSpec{ServiceAccountName: "sa", Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
			Driver: driverOf, VolumeAttributes: map[string]string{"size": "1"},
		}}}}},
	}
	return volume.Request{Pod: pod, Volume: &pod.Spec.Volumes[0], Dir: b.dir()}
}

func (b *bench) remains() volume.Remains {
	return volume.Remains{UID: "uid-1", Name: "v", Dir: b.dir()}
}

// gone fails when anything of a volume is left.
func (b *bench) gone(t *testing.T) {
	t.Helper()
	if _, err := os.Lstat(b.dir()); !errors.Is(err, os.ErrNotExist) {
		entries, _ := os.ReadDir(b.dir())
		t.Errorf("%s is left: %v %v", b.dir(), err, entries)
	}
	if left := b.mounts.Mounts(); len(left) > 0 {
		t.Errorf("mounted still: %v", left)
	}
	eventually.True(t, "a volume is kept in mind", func() bool { // until nobody has it to be looked at
		b.Volumes.mu.Lock()
		defer b.Volumes.mu.Unlock()
		return len(b.volumes) == 0
	})
}
