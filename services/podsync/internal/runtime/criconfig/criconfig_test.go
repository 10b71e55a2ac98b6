package criconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
)

// world stands in for objects, volumes and images.
type world struct {
	services map[string][]*v1.Service
	svcErr   error
	volumes  map[string]string
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

func (w *world) HostPath(_ types.UID, name string) (string, bool) {
	p, ok := w.volumes[name]
	return p, ok
}

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

func TestASandboxIsWhatThePodAsksFor(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolUDP}}})
	p.Spec.RuntimeClassName = ptr.To("gvisor")
	p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/ipv4/conf/eth0.1/x", Value: "1"}, {Name: "kernel.shm_rmid_forced", Value: "1"}}}
	got, handler, err := f.builder.Sandbox(t.Context(), p, 2)
	if err != nil {
		t.Fatal(err)
	}
	if handler != "runsc" || got.Metadata.Attempt != 2 || got.Metadata.Uid != "u" || got.Hostname != "p" || got.Linux.CgroupParent != "/kubepods/x" {
		t.Errorf("handler %q, sandbox %v", handler, got)
	}
	if want := filepath.Join(f.root, "logs/ns_p_u"); got.LogDirectory != want {
		t.Errorf("log directory %s, want %s", got.LogDirectory, want)
	}
	for dir, mode := range map[string]os.FileMode{got.LogDirectory: 0o755, filepath.Join(f.root, "pods/u"): 0o750} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	if d := got.DnsConfig; d.Servers[0] != "10.96.0.10" || d.Searches[3] != "corp" || d.Options[0] != "ndots:5" {
		t.Errorf("DNS %v", d)
	}
	if m := got.PortMappings; len(m) != 1 || m[0].HostPort != 8080 || m[0].Protocol != runtimeapi.Protocol_UDP {
		t.Errorf("ports %v", m)
	}
	if s := got.Linux.Sysctls; s["net.ipv4.conf.eth0/1.x"] != "1" || s["kernel.shm_rmid_forced"] != "1" {
		t.Errorf("sysctls %v", s)
	}
	if got.Labels["app"] != "x" || got.Labels["io.kubernetes.pod.uid"] != "u" || got.Annotations["a"] != "b" {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
	p.Spec.HostNetwork = true
	if got, _, err = f.builder.Sandbox(t.Context(), p, 2); err != nil || got.Hostname != "" || got.PortMappings != nil || got.DnsConfig.Servers[0] != "9.9.9.9" {
		t.Errorf("on the host's network: %v, %v", got, err)
	}
}

func TestImagesArePulledByWhatTheSandboxWillBe(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{})
	p.Spec.RuntimeClassName = ptr.To("gone") // which the sandbox will say
	got, err := f.builder.Pull(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(f.root); err != nil || len(entries) != 2 || len(f.events.Events) != 0 {
		t.Errorf("it made %v and said %d things, %v", entries, len(f.events.Events), err)
	}
	p.Spec.RuntimeClassName = nil
	sandbox, _, err := f.builder.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.Metadata, sandbox.Metadata) || got.Metadata.Namespace != "ns" || !maps.Equal(got.Annotations, sandbox.Annotations) || got.Annotations["a"] != "b" ||
		!maps.Equal(got.Labels, sandbox.Labels) || got.Linux.CgroupParent != sandbox.Linux.CgroupParent {
		t.Errorf("images are pulled for %v, and the sandbox is %v", got, sandbox)
	}
}

func TestWhatASandboxCannotBeIsSaid(t *testing.T) {
	f := newFixture(t)
	for want, change := range map[string]func(*v1.Pod){
		"RuntimeClass \"absent\"": func(p *v1.Pod) { p.Spec.RuntimeClassName = ptr.To("absent") },
		"\"runsc\" does not support user namespaces": func(p *v1.Pod) {
			p.Spec.HostUsers, p.Spec.RuntimeClassName = ptr.To(false), ptr.To("gvisor")
		},
		"cannot stand beside hostNetwork": func(p *v1.Pod) { p.Spec.HostUsers, p.Spec.HostNetwork = ptr.To(false), true },
		"is too long":                     func(p *v1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("s", 60), ptr.To(true) },
		"cannot be a directory":           func(p *v1.Pod) { p.UID = "../x" },
	} {
		p := pod(v1.Container{})
		change(p)
		if _, _, err := f.builder.Sandbox(t.Context(), p, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
	f.builder.cfg.ClusterDNS = nil
	lacking := pod(v1.Container{})
	if _, _, err := f.builder.Sandbox(t.Context(), lacking, 0); err != nil {
		t.Fatal(err)
	}
	const lacks = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy."
	for _, want := range []string{"Warning MissingClusterDNS " + lacks, "Warning MissingClusterDNS pod: \"" + lacking.Name + "_" + lacking.Namespace + "(" + string(lacking.UID) + ")\". " + lacks} { // the node's, the pod's
		if e := <-f.events.Events; !strings.HasPrefix(e, want) {
			t.Errorf("event %q, want %q", e, want)
		}
	}
}

func TestWhatTheHostsResolverHasTooMuchIsSaidOnce(t *testing.T) {
	f := newFixture(t)
	file := filepath.Join(f.root, "resolv.conf")
	f.builder.cfg.ResolvConf, f.builder.cfg.ClusterDomain = file, "cluster.local"
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ text, want string }{
		{"search a b\n", ""},
		{"search " + strings.Repeat("d ", 30) + "\n", "Resolv.conf file '" + file + "' contains search line consisting of more than 29 domains!"},
		{"search " + strings.Repeat("d ", 30) + "\n", ""}, // said already
		{"search " + strings.Repeat("d", 254) + "\n", "contains a search path which length is more than allowed 253 chars!"},
		{"search " + strings.Repeat(strings.Repeat("d", 200)+" ", 12) + "\n", "contains search line which length is more than allowed 2048 chars!"},
		{"nameserver\n", "a nameserver line has no address"},
	} {
		write(step.text)
		_, _ = f.builder.resolver(pod(v1.Container{})) // what it gives is another test's
		got := ""
		for len(f.events.Events) > 0 {
			if e := <-f.events.Events; strings.HasPrefix(e, "Warning CheckLimitsForResolvConf ") {
				got = e
			}
		}
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("said %q, want %q", got, step.want)
		}
	}
}

func TestAPodWithItsOwnUsersHasThemEverywhere(t *testing.T) {
	f := newFixture(t)
	f.volumes["v"], f.volumes["img"] = "/vol/v", ""
	p := pod(v1.Container{TerminationMessagePath: "/dev/termination-log", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "img", MountPath: "/img"}}})
	p.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "img", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "tools:1"}}},
	}
	p.Spec.HostUsers = ptr.To(false)
	sandbox, _, err := f.builder.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	want := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	for what, users := range map[string]*runtimeapi.UserNamespace{
		"sandbox":   sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
		"container": got.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
	} {
		if !proto.Equal(users, want) {
			t.Errorf("the %s has %v, want %v", what, users, want)
		}
	}
	for _, m := range got.Mounts {
		if len(m.UidMappings) != 1 || !proto.Equal(m.UidMappings[0], ids[0]) || len(m.GidMappings) != 1 {
			t.Errorf("mount %v is not idmapped", m)
		}
	}
	p.Spec.HostUsers = ptr.To(true)
	if got, err = f.container(t, p); err != nil || got.Linux.SecurityContext.NamespaceOptions.UsernsOptions != nil || got.Mounts[0].UidMappings != nil {
		t.Errorf("with the host's users: %v, %v", got, err)
	}
}

func variable(c *runtimeapi.ContainerConfig, name string) string {
	for _, e := range c.Envs {
		if e.Key == name {
			return string(e.Value)
		}
	}
	return "(unset)"
}

func TestAContainerIsWhatItsSpecAsksFor(t *testing.T) {
	f := newFixture(t)
	svc := func(name, ip string) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 443}}}}
	}
	f.services["ns"] = []*v1.Service{svc("db", "10.1.1.1")}
	f.services["default"] = []*v1.Service{svc("kubernetes", "10.96.0.1"), svc("other", "10.96.0.2")}
	p := pod(v1.Container{
		Image: "img:1", Command: []string{"run", "$(IP)", "$(NO)"}, Args: []string{"$$(IP)"}, WorkingDir: "/w", Stdin: true, TTY: true,
		Env: []v1.EnvVar{
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "HOST", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
			{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}},
		},
		Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("2Gi")},
		},
		TerminationMessagePath: "/dev/termination-log",
		Lifecycle:              &v1.Lifecycle{StopSignal: ptr.To(v1.Signal("SIGRTMIN+1"))},
	})
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Command, []string{"run", "10.0.0.9", "$(NO)"}) || !slices.Equal(got.Args, []string{"$(IP)"}) {
		t.Errorf("command %q args %q", got.Command, got.Args)
	}
	for name, want := range map[string]string{
		"IP": "10.0.0.9", "HOST": "192.168.0.1", "S": "secret", "DB_SERVICE_HOST": "10.1.1.1",
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "OTHER_SERVICE_HOST": "(unset)",
	} {
		if v := variable(got, name); v != want {
			t.Errorf("%s = %s, want %s", name, v, want)
		}
	}
	r := got.Linux.Resources
	if r.CpuShares != 1536 || r.CpuQuota != 150_000 || r.CpuPeriod != 100_000 || r.MemoryLimitInBytes != 2<<30 || r.OomScoreAdj != 750 {
		t.Errorf("resources %v", r)
	}
	if got.LogPath != "c/3.log" || got.Metadata.Attempt != 3 || got.Image.Image != "sha256:1" || got.Image.UserSpecifiedImage != "img:1" ||
		!got.Stdin || !got.Tty || got.WorkingDir != "/w" || got.StopSignal != runtimeapi.Signal_SIGRTMINPLUS1 {
		t.Errorf("config %v", got)
	}
	if got.Linux.SecurityContext.RunAsUser.GetValue() != 65534 || f.asked != 1 {
		t.Errorf("runs as %v, asked %d times", got.Linux.SecurityContext.RunAsUser, f.asked)
	}
	if got.Annotations["polylet.dev/restart-backoff"] != "10s" || got.Annotations["io.kubernetes.container.restartCount"] != "3" {
		t.Errorf("annotations %v", got.Annotations)
	}
	if len(got.Mounts) != 2 || got.Mounts[0].ContainerPath != "/etc/hosts" || got.Mounts[1].ContainerPath != "/dev/termination-log" {
		t.Fatalf("mounts %v", got.Mounts)
	}
	if raw, err := os.ReadFile(got.Mounts[0].HostPath); err != nil || !strings.HasSuffix(string(raw), "10.0.0.9\tp\n") {
		t.Errorf("hosts file %q, %v", raw, err)
	}
	if info, err := os.Stat(got.Mounts[1].HostPath); err != nil || info.Mode().Perm() != 0o666 || info.Size() != 0 {
		t.Errorf("termination log %v, %v", info, err)
	}
	again, err := f.container(t, p)
	if err != nil || again.Mounts[1].HostPath == got.Mounts[1].HostPath || again.Mounts[0].HostPath != got.Mounts[0].HostPath {
		t.Errorf("a restart shares the termination log or has another hosts file: %v", err)
	}
}

func TestAnImageVolumeIsTheRuntimesToMount(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{
		Env:          []v1.EnvVar{{Name: "DIR", Value: "lib"}},
		VolumeMounts: []v1.VolumeMount{{Name: "img", MountPath: "data", SubPathExpr: "usr/$(DIR)"}},
	})
	p.Spec.Volumes = []v1.Volume{{Name: "img", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "tools:1"}}}}
	f.volumes["img"] = ""
	r := Request{Pod: p, Container: "c", ImageRef: "sha256:1", PodIPs: []string{"10.0.0.9"}, VolumeRefs: map[string]string{"img": "sha256:2"}}
	if _, _, err := f.builder.Sandbox(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	got, err := f.builder.Container(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.Mount{
		ContainerPath: "/data", Readonly: true, ImageSubPath: "usr/lib",
		Image: &runtimeapi.ImageSpec{Image: "sha256:2", UserSpecifiedImage: "tools:1"},
	}
	if !proto.Equal(got.Mounts[0], want) {
		t.Errorf("mount %v, want %v", got.Mounts[0], want)
	}
	r.VolumeRefs = nil
	if _, err := f.builder.Container(t.Context(), r); reason.Of(err) != "CreateContainerConfigError" {
		t.Errorf("without its image: %v", err)
	}
}

func TestVolumeMountsBecomeMounts(t *testing.T) {
	f := newFixture(t)
	f.volumes = map[string]string{"e": "/v/e", "s": "/v/s", "h": "/host"}
	p := pod(v1.Container{
		Env: []v1.EnvVar{{Name: "SUB", Value: "name"}},
		VolumeMounts: []v1.VolumeMount{
			{Name: "e", MountPath: "/data"},
			{Name: "s", MountPath: "rel/secret"},
			{Name: "h", MountPath: "/h", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)},
			{Name: "e", MountPath: "/sub", SubPathExpr: "dir/$(SUB)", MountPropagation: ptr.To(v1.MountPropagationHostToContainer)},
			{Name: "h", MountPath: "/etc/hosts", MountPropagation: ptr.To(v1.MountPropagationBidirectional)},
		},
	})
	p.Spec.RuntimeClassName = ptr.To("gvisor")
	p.Spec.Volumes = []v1.Volume{
		{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
	}
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/v/e /data ro=false rro=false private relabel=true",
		"/v/s /rel/secret ro=true rro=false private relabel=true",
		"/host /h ro=true rro=true private relabel=false",
		"/sub/e/c/3 /sub ro=false rro=false host_to_container relabel=true",
		"/host /etc/hosts ro=false rro=false bidirectional relabel=false",
	}
	if len(got.Mounts) != len(want) {
		t.Fatalf("%d mounts, want %d: the user's own hosts file stays", len(got.Mounts), len(want))
	}
	for i, m := range got.Mounts {
		text := fmt.Sprintf("%s %s ro=%v rro=%v %s relabel=%v", m.HostPath, m.ContainerPath, m.Readonly, m.RecursiveReadOnly,
			strings.ToLower(strings.TrimPrefix(m.Propagation.String(), "PROPAGATION_")), m.SelinuxRelabel)
		if text != want[i] {
			t.Errorf("mount %d: %s, want %s", i, text, want[i])
		}
	}
	if !slices.Equal(f.subPaths, []string{"dir/name"}) {
		t.Errorf("subPaths %v", f.subPaths)
	}
}

func TestASubPathOfAVariableStaysInsideOfItsVolume(t *testing.T) {
	for value, want := range map[string]string{
		"../../etc": "must not contain '..'", "a/../b": "must not contain '..'", "..": "must not contain '..'", "/etc": "must not be an absolute path", "a/..b": "",
		// Without it, it would be all that is in the volume.
		"": `missing value for "A"`,
	} {
		for name, source := range map[string]v1.VolumeSource{"e": {EmptyDir: &v1.EmptyDirVolumeSource{}}, "img": {Image: &v1.ImageVolumeSource{Reference: "i"}}} {
			f := newFixture(t)
			f.volumes[name] = "/v/" + name
			p := pod(v1.Container{Env: []v1.EnvVar{{Name: "A", Value: value}}, VolumeMounts: []v1.VolumeMount{{Name: name, MountPath: "/x", SubPathExpr: "$(A)"}}})
			p.Spec.Volumes = []v1.Volume{{Name: name, VolumeSource: source}}
			_, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "c", VolumeRefs: map[string]string{"img": "sha"}})
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q of volume %s: %v, want %q", value, name, err, want)
			}
			if want != "" && len(f.subPaths) > 0 {
				t.Errorf("%s was looked for in the volume", value)
			}
		}
	}
}

func TestWhatAContainerCannotBeIsAConfigurationError(t *testing.T) {
	volume := []v1.Volume{{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	for want, c := range map[string]v1.Container{
		`configmap "cm" not found`:                                                  {EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}},
		`cannot find volume to mount into container: volume "no"`:                   {VolumeMounts: []v1.VolumeMount{{Name: "no", MountPath: "/x"}}},
		`failed to prepare subPath for volumeMount "e" of container "c": leads out`: {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "bad"}}},
		`missing value for "NO"`:                                                    {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPathExpr: "$(NO)"}}},
		`not supported by the runtime handler ""`:                                   {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)}}},
		"image will run as root":                                                    {SecurityContext: &v1.SecurityContext{RunAsNonRoot: ptr.To(true)}},
		"volumeDevices":                                                             {VolumeDevices: []v1.VolumeDevice{{Name: "x"}}},
		"unknown stopSignal":                                                        {Lifecycle: &v1.Lifecycle{StopSignal: ptr.To(v1.Signal("SIGNONE"))}},
	} {
		f := newFixture(t)
		f.volumes["e"] = "/v/e"
		f.image = &runtimeapi.Image{}
		p := pod(c)
		p.Spec.Volumes = volume
		_, err := f.container(t, p)
		if reason.Of(err) != "CreateContainerConfigError" || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
}

// A headless Service of that name gives no address; whoever may make Services would take
// the apiserver's away from the pods of the namespace.
func TestAHeadlessServiceDoesNotHideTheApiserver(t *testing.T) {
	for own, want := range map[string]string{v1.ClusterIPNone: "10.96.0.1", "": "10.96.0.1", "10.1.1.1": "10.1.1.1"} {
		f := newFixture(t)
		svc := func(ip string) []*v1.Service {
			return []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 443}}}}}
		}
		f.services["ns"], f.services["default"] = svc(own), svc("10.96.0.1")
		got, err := f.container(t, pod(v1.Container{Image: "img:1"}))
		if err != nil {
			t.Fatal(err)
		}
		if host := variable(got, "KUBERNETES_SERVICE_HOST"); host != want {
			t.Errorf("beside a service with the address %q the apiserver's is %q, want %q", own, host, want)
		}
	}
}

func TestServicesAreNotWaitedForWithoutAnApiserver(t *testing.T) {
	f := newFixture(t)
	f.svcErr = errors.New("away")
	p := pod(v1.Container{})
	if _, err := f.container(t, p); err == nil {
		t.Error("a pod of the apiserver was built without its services")
	}
	p.Annotations["kubernetes.io/config.source"] = "file"
	if _, err := f.container(t, p); err != nil {
		t.Errorf("static pod: %v", err)
	}
	delete(p.Annotations, "kubernetes.io/config.source")
	f.builder.cfg.Standalone = true
	if _, err := f.container(t, p); err != nil {
		t.Errorf("standalone: %v", err)
	}
}

func TestFilesThatContainersMayWriteToAreToldOf(t *testing.T) {
	f := newFixture(t)
	config, err := f.container(t, pod(v1.Container{TerminationMessagePath: "/dev/termination-log"}))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range config.Mounts {
		want = append(want, m.HostPath)
	}
	if len(want) != 2 || !slices.Equal(f.written, want) {
		t.Errorf("told of %q; mounted are %q", f.written, want)
	}
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

func TestTheHostsFileIsRewrittenInPlace(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{})
	first, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first.Mounts[0].HostPath)
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "c", PodIPs: []string{"10.0.0.10"}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second.Mounts[0].HostPath)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("running containers lose the file: %v", err)
	}
	if raw, _ := os.ReadFile(second.Mounts[0].HostPath); !strings.Contains(string(raw), "10.0.0.10\tp\n") || strings.Contains(string(raw), "10.0.0.9") {
		t.Errorf("content %q", raw)
	}
	p.Spec.HostNetwork = true
	third, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(third.Mounts[0].HostPath); string(raw) != "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n" {
		t.Errorf("host network: %q", raw)
	}
}

func TestAHostsFileThatAContainerHasBlownUpIsNotRead(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{})
	first, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	file := first.Mounts[0].HostPath
	if err := os.Truncate(file, 1<<43); err != nil { // holes only; more than fits into memory
		t.Skipf("no file of this size here: %v", err)
	}
	if _, err := f.container(t, p); err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(file); !strings.Contains(string(raw), "10.0.0.9\tp\n") || len(raw) > 1000 {
		t.Errorf("it holds %.100q", raw)
	}
}

func TestEnvironmentFilesCannotBeTraps(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.volumes["e"] = dir
	for name, create := range map[string]func(string) error{
		"good": func(p string) error { return os.WriteFile(p, []byte("K='v'\n"), 0o600) },
		"link": func(p string) error { return os.Symlink("/etc/passwd", p) },
		"pipe": func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"huge": func(p string) error { return os.WriteFile(p, make([]byte, maxEnvFile+1), 0o600) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
		// Of no driver: who opens it is told so. To open a watchdog restarts the machine.
		"device": func(p string) error { return syscall.Mknod(p, syscall.S_IFCHR|0o666, 250<<8|250) },
	} {
		if err := create(filepath.Join(dir, name)); name == "device" && errors.Is(err, syscall.EPERM) {
			continue // not as root
		} else if err != nil {
			t.Fatal(err)
		}
		text, found, err := f.builder.envFile(pod(v1.Container{}), "e", name)
		if name == "good" && (err != nil || !found || text != "K='v'\n") {
			t.Errorf("good: %q %v %v", text, found, err)
		}
		if name != "good" && err == nil {
			t.Errorf("%s was read: %.20q", name, text)
		}
		if name == "device" && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("the device was opened: %v", err)
		}
	}
	if _, found, err := f.builder.envFile(pod(v1.Container{}), "e", "absent"); found || err != nil {
		t.Errorf("absent: %v, %v", found, err)
	}
}

func TestAnEphemeralContainerJoinsItsTarget(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{})
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "busybox", Stdin: true}, TargetContainerName: "c",
	}}
	if _, _, err := f.builder.Sandbox(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	got, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "debug", TargetID: "id"})
	if err != nil || got.Linux.SecurityContext.NamespaceOptions.TargetId != "id" || !got.Stdin || got.Image.UserSpecifiedImage != "busybox" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "no"}); err == nil {
		t.Error("a container that does not exist was built")
	}
}

func TestWhatTheGatesOfAPodsFieldsSwitchOff(t *testing.T) {
	p := pod(v1.Container{
		Image: "img:1", Lifecycle: &v1.Lifecycle{StopSignal: ptr.To(v1.SIGUSR1)},
		Env: []v1.EnvVar{{Name: "FILE", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "e", Path: "f", Key: "K"}}}},
	})
	p.Spec.HostnameOverride = ptr.To("other")
	for _, tc := range []struct {
		name       string
		off        Config
		host, file string
		signal     runtimeapi.Signal
	}{
		{"all on", Config{}, "other", "v", runtimeapi.Signal_SIGUSR1},
		{"EnvFiles off", Config{NoEnvFiles: true}, "other", "", runtimeapi.Signal_SIGUSR1},
		{"HostnameOverride off", Config{NoHostnameOverride: true}, "p", "v", runtimeapi.Signal_SIGUSR1},
		{"ContainerStopSignals off", Config{NoStopSignals: true}, "other", "v", runtimeapi.Signal_RUNTIME_DEFAULT},
	} {
		f := newFixture(t)
		f.volumes["e"] = t.TempDir()
		if err := os.WriteFile(filepath.Join(f.volumes["e"], "f"), []byte("K='v'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.builder.cfg.NoEnvFiles, f.builder.cfg.NoHostnameOverride, f.builder.cfg.NoStopSignals = tc.off.NoEnvFiles, tc.off.NoHostnameOverride, tc.off.NoStopSignals
		sandbox, _, err := f.builder.Sandbox(t.Context(), p, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.container(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if file := variable(got, "FILE"); sandbox.Hostname != tc.host || file != tc.file || got.StopSignal != tc.signal {
			t.Errorf("%s: host name %q, variable %q, signal %v", tc.name, sandbox.Hostname, file, got.StopSignal)
		}
		if raw, err := os.ReadFile(filepath.Join(f.root, "pods", "u", "etc-hosts")); err != nil || !strings.HasSuffix(string(raw), "\t"+tc.host+"\n") {
			t.Errorf("%s: hosts file %q, %v", tc.name, raw, err)
		}
	}
}

func TestAContainerIsLimitedToTheHugePagesOfItsPod(t *testing.T) {
	f := newFixture(t)
	f.builder.machine.once.Do(func() { f.builder.machine.pageSizes = []string{"2MB", "1GB"} })
	p := pod(v1.Container{})
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"hugepages-2Mi": resource.MustParse("64Mi")}}
	got := f.builder.containerResources(p, &p.Spec.Containers[0]).HugepageLimits
	if len(got) != 2 || got[0].GetPageSize() != "2MB" || got[0].GetLimit() != 64<<20 || got[1].GetLimit() != 0 {
		t.Errorf("limits %v", got)
	}
}

// A runtime that makes a machine of a pod makes it as large as this.
func TestASandboxIsToldOfTheLimitsThatItsContainersHave(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("2")}}})
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "proxy", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}})
	p.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
	config, _, err := f.builder.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := config.GetLinux().GetResources()
	if got.GetMemoryLimitInBytes() != 1<<30 || got.GetCpuQuota() != 200_000 || got.GetCpuPeriod() != 100_000 {
		t.Errorf("resources %v", got)
	}
	// Whoever has no limit may use more than the others' limits once the pod runs.
	if _, resized := f.builder.SandboxResources(p); resized.GetMemoryLimitInBytes() != 0 || resized.GetCpuQuota() != 0 {
		t.Errorf("after a resize: %v", resized)
	}
}
