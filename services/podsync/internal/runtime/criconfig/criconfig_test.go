package criconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
)

// world stands in for objects, volumes and images.
type world struct {
	services map[string][]*v1.Service
	svcErr   error
	volumes  map[string]string
	ofHost   string
	groups   []int64
	subPaths []string
	image    *runtimeapi.Image
	asked    int
}

func (w *world) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmap"}, name)
}

func (w *world) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"k": []byte("secret")}}, nil
}

func (w *world) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	if name != "gvisor" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "runtimeclass"}, name)
	}
	return &nodev1.RuntimeClass{Handler: "runsc"}, nil
}

func (w *world) Services(_ context.Context, ns string) ([]*v1.Service, error) {
	return w.services[ns], w.svcErr
}

func (w *world) Device(_ types.UID, name string) (string, bool) {
	path, ok := w.volumes["device "+name]
	return path, ok
}

func (w *world) HostPath(_ types.UID, name string) (string, bool) {
	p, ok := w.volumes[name]
	return p, ok
}

func (w *world) KeepsLabels(_ types.UID, name string) bool { return name == w.ofHost }

func (w *world) Groups(types.UID) []int64 { return w.groups }

func (w *world) SubPath(_ context.Context, _ *v1.Pod, container string, index int, volume, path string) (string, error) {
	if path == "bad" {
		return "", errors.New("leads out of the volume")
	}
	w.subPaths = append(w.subPaths, path)
	return fmt.Sprintf("/sub/%s/%s/%d", volume, container, index), nil
}

func (w *world) Image(context.Context, string) (*runtimeapi.Image, error) {
	w.asked++
	return w.image, nil
}

type fixture struct {
	*world
	builder *Builder
	root    string
	events  *record.FakeRecorder
	written []string // the files that containers may write to
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{"resolv.conf": "nameserver 9.9.9.9\nsearch corp\n", "hosts": "127.0.0.1 localhost\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{services: map[string][]*v1.Service{}, volumes: map[string]string{}, image: &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 65534}}}
	f := &fixture{world: w, root: root, events: record.NewFakeRecorder(10)}
	f.builder = New(Config{
		RootDir: root, PodLogsDir: filepath.Join(root, "logs"), NodeName: "n", ClusterDomain: "cluster.local", ClusterDNS: []string{"10.96.0.10"},
		ResolvConf: filepath.Join(root, "resolv.conf"), HostsFile: filepath.Join(root, "hosts"), CPUCFSQuota: true,
	}, Deps{
		Objects: w, Volumes: w, Images: w, Cgroups: cgroup.Off{Parent: "/kubepods/x"}, UserNamespaces: userns.New(userns.Config{RootDir: root}),
		HostIPs:     func() []string { return []string{"192.168.0.1"} },
		Allocatable: func() v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")} },
		Capacity:    func() v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi")} },
		Handlers: func() map[string]*runtimeapi.RuntimeHandlerFeatures {
			return map[string]*runtimeapi.RuntimeHandlerFeatures{"": {UserNamespaces: true}, "runsc": {RecursiveReadOnlyMounts: true}}
		},
		Recorder: f.events,
		Written:  func(file string) { f.written = append(f.written, file) },
	})
	return f
}

func pod(c v1.Container) *v1.Pod {
	c.Name = "c"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a": "b"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{c}},
	}
}

func (f *fixture) container(t *testing.T, p *v1.Pod) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	if _, _, err := f.builder.Sandbox(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	return f.builder.Container(t.Context(), Request{Pod: p, Container: "c", RestartCount: 3, ImageRef: "sha256:1", VolumeRefs: map[string]string{"img": "sha256:2"}, PodIPs: []string{"10.0.0.9"}, Backoff: 10 * time.Second})
}

func variable(c *runtimeapi.ContainerConfig, name string) string {
	for _, e := range c.Envs {
		if e.Key == name {
			return string(e.Value)
		}
	}
	return "(unset)"
}

// The log has another name at each try; an error with it in would be a new event and
// a new status each time.
func TestATerminationLogThatCannotBeMadeIsTheSameErrorAtEachTry(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{TerminationMessagePath: "/dev/termination-log"})
	dir := filepath.Join(f.builder.podDir(p), "containers", "c")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", dir); err != nil { // a directory, and nobody makes a file there
		t.Fatal(err)
	}
	_, first := f.container(t, p)
	_, second := f.container(t, p)
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), dir) {
		t.Errorf("%v\nand then: %v", first, second)
	}
}
