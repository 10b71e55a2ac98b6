package security

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func pod(p *v1.PodSecurityContext, c *v1.SecurityContext) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Annotations: map[string]string{}},
		Spec:       v1.PodSpec{SecurityContext: p, Containers: []v1.Container{{Name: "c", SecurityContext: c}}},
	}
}

func root() (ImageUser, error) { return ImageUser{}, nil }

func build(t *testing.T, cfg Config, p *v1.Pod) *runtimeapi.LinuxContainerSecurityContext {
	t.Helper()
	out, err := Container(cfg, p, &p.Spec.Containers[0], "", root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheContainersContextGoesBeforeThePods(t *testing.T) {
	p := pod(&v1.PodSecurityContext{
		RunAsUser: ptr.To[int64](1), RunAsGroup: ptr.To[int64](2), FSGroup: ptr.To[int64](3), SupplementalGroups: []int64{4},
		SELinuxOptions: &v1.SELinuxOptions{Level: "s0"}, SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict),
	}, &v1.SecurityContext{
		RunAsUser: ptr.To[int64](10), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
	})
	got := build(t, Config{}, p)
	if got.RunAsUser.Value != 10 || got.RunAsGroup.Value != 2 || !got.NoNewPrivs || !got.ReadonlyRootfs || got.Privileged {
		t.Errorf("context %v", got)
	}
	if g := got.SupplementalGroups; len(g) != 2 || g[0] != 3 || g[1] != 4 || got.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict {
		t.Errorf("groups %v %v", g, got.SupplementalGroupsPolicy)
	}
	if got.SelinuxOptions.Level != "s0" || got.Capabilities.AddCapabilities[0] != "NET_ADMIN" || got.Capabilities.DropCapabilities[0] != "ALL" {
		t.Errorf("context %v", got)
	}
	if len(got.MaskedPaths) != 12 || len(got.ReadonlyPaths) != 5 {
		t.Errorf("masked %v, read-only %v", got.MaskedPaths, got.ReadonlyPaths)
	}
	s := Sandbox(p)
	if s.RunAsUser.Value != 1 || s.RunAsGroup.Value != 2 || s.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || s.Privileged || len(s.SupplementalGroups) != 2 {
		t.Errorf("sandbox %v", s)
	}
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true), ProcMount: ptr.To(v1.UnmaskedProcMount)}
	if got := build(t, Config{}, p); !got.Privileged || got.MaskedPaths != nil || got.ReadonlyPaths != nil || got.NoNewPrivs {
		t.Errorf("privileged and unmasked: %v", got)
	}
	if !Sandbox(p).Privileged {
		t.Error("the sandbox of a privileged container is not privileged")
	}
}

func TestTheGroupsOfVolumesComeToThoseThatThePodNames(t *testing.T) {
	p := pod(&v1.PodSecurityContext{FSGroup: ptr.To[int64](3), SupplementalGroups: []int64{4}}, &v1.SecurityContext{})
	if g := build(t, Config{Groups: []int64{4, 5}}, p).SupplementalGroups; !slices.Equal(g, []int64{3, 4, 5}) {
		t.Errorf("groups %v", g)
	}
	p.Spec.SecurityContext = nil
	if g := build(t, Config{Groups: []int64{4}}, p).SupplementalGroups; !slices.Equal(g, []int64{4}) {
		t.Errorf("groups %v of a pod that names none", g)
	}
}

func TestNonRootIsKept(t *testing.T) {
	nonRoot := &v1.SecurityContext{RunAsNonRoot: ptr.To(true)}
	for _, c := range []struct {
		name  string
		pod   *v1.Pod
		image ImageUser
		fails string
		user  int64
		named string
	}{
		{"no demand, root image", pod(nil, nil), ImageUser{}, "", 0, ""},
		{"no demand, named image", pod(nil, nil), ImageUser{Name: "app"}, "", -1, "app"},
		{"no demand, numbered image", pod(nil, nil), ImageUser{UID: ptr.To[int64](5)}, "", 5, ""},
		{"spec's user", pod(nil, &v1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](7)}), ImageUser{}, "", 7, ""},
		{"spec's root", pod(nil, &v1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](0)}), ImageUser{}, `container's runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)`, 0, ""},
		{"pod's demand, spec's root", pod(&v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, &v1.SecurityContext{RunAsUser: ptr.To[int64](0)}), ImageUser{}, "breaks non-root policy", 0, ""},
		{"root image", pod(nil, nonRoot), ImageUser{}, "container has runAsNonRoot and image will run as root", 0, ""},
		{"image of uid 0", pod(nil, nonRoot), ImageUser{UID: ptr.To[int64](0)}, "image will run as root", 0, ""},
		{"image with a number that runtimes cut to root's", pod(nil, nonRoot), ImageUser{UID: ptr.To(int64(1 << 32))}, "container has runAsNonRoot and image has user 4294967296, which is beyond 2147483647", 0, ""},
		{"image with a negative number", pod(nil, nonRoot), ImageUser{UID: ptr.To(int64(-1))}, "cannot verify user is non-root", 0, ""},
		{"named image", pod(nil, nonRoot), ImageUser{Name: "app"}, "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root", 0, ""},
		{"numbered image", pod(nil, nonRoot), ImageUser{UID: ptr.To[int64](5)}, "", 5, ""},
	} {
		got, err := Container(Config{}, c.pod, &c.pod.Spec.Containers[0], "", func() (ImageUser, error) { return c.image, nil })
		if (err == nil) != (c.fails == "") || (err != nil && !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.fails)
			continue
		}
		if err != nil {
			continue
		}
		uid := int64(-1)
		if got.RunAsUser != nil {
			uid = got.RunAsUser.Value
		}
		if uid != c.user || got.RunAsUsername != c.named {
			t.Errorf("%s: runs as %d %q, want %d %q", c.name, uid, got.RunAsUsername, c.user, c.named)
		}
	}
	away := errors.New("away")
	p := pod(nil, nil)
	if _, err := Container(Config{}, p, &p.Spec.Containers[0], "", func() (ImageUser, error) { return ImageUser{}, away }); !errors.Is(err, away) {
		t.Errorf("err = %v", err)
	}
}

func TestSeccompProfiles(t *testing.T) {
	local := func(s string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &s}
	}
	for _, c := range []struct {
		name     string
		pod, con *v1.SeccompProfile
		byDef    bool
		want     runtimeapi.SecurityProfile_ProfileType
		ref      string
		fails    bool
	}{
		{"unset", nil, nil, false, runtimeapi.SecurityProfile_Unconfined, "", false},
		{"unset with the default on", nil, nil, true, runtimeapi.SecurityProfile_RuntimeDefault, "", false},
		{"pod's", &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, nil, false, runtimeapi.SecurityProfile_RuntimeDefault, "", false},
		{"container's first", local("x"), &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}, true, runtimeapi.SecurityProfile_Unconfined, "", false},
		{"local", nil, local("a/b.json"), false, runtimeapi.SecurityProfile_Localhost, "/root/seccomp/a/b.json", false},
		{"local that leaves", nil, local("../x"), false, 0, "", true},
		{"local without a name", nil, &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}, false, 0, "", true},
		{"unknown", nil, &v1.SeccompProfile{Type: "X"}, false, 0, "", true},
	} {
		p := pod(&v1.PodSecurityContext{SeccompProfile: c.pod}, &v1.SecurityContext{SeccompProfile: c.con})
		got, err := Container(Config{SeccompRoot: "/root/seccomp", SeccompDefault: c.byDef}, p, &p.Spec.Containers[0], "", root)
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err == nil && (got.Seccomp.ProfileType != c.want || got.Seccomp.LocalhostRef != c.ref) {
			t.Errorf("%s: %v", c.name, got.Seccomp)
		}
	}
}

func TestAppArmorProfilesFromFieldAndAnnotation(t *testing.T) {
	p := pod(nil, nil)
	if got := build(t, Config{}, p); got.Apparmor != nil {
		t.Errorf("unset: %v", got.Apparmor)
	}
	p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "localhost/mine"
	if got := build(t, Config{}, p); got.Apparmor.LocalhostRef != "mine" || got.ApparmorProfile != "localhost/mine" { //nolint:staticcheck // what old runtimes read
		t.Errorf("annotation: %v", got.Apparmor)
	}
	p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	if got := build(t, Config{}, p); got.Apparmor.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || got.ApparmorProfile != "runtime/default" { //nolint:staticcheck // what old runtimes read
		t.Errorf("field before annotation: %v", got.Apparmor)
	}
	p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "nonsense"
	p.Spec.SecurityContext = nil
	if _, err := Container(Config{}, p, &p.Spec.Containers[0], "", root); err == nil {
		t.Error("a nonsense profile was taken")
	}
}

func TestNamespaces(t *testing.T) {
	const podNS, node, own, target = runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_TARGET
	for _, c := range []struct {
		name          string
		spec          v1.PodSpec
		target        string
		net, ipc, pid runtimeapi.NamespaceMode
	}{
		{"own", v1.PodSpec{}, "", podNS, podNS, own},
		{"host's", v1.PodSpec{HostNetwork: true, HostIPC: true, HostPID: true}, "", node, node, node},
		{"shared", v1.PodSpec{ShareProcessNamespace: ptr.To(true)}, "", podNS, podNS, podNS},
		{"another's", v1.PodSpec{ShareProcessNamespace: ptr.To(true)}, "id", podNS, podNS, target},
	} {
		got := Namespaces(&v1.Pod{Spec: c.spec}, c.target)
		if got.Network != c.net || got.Ipc != c.ipc || got.Pid != c.pid || (c.pid == target) != (got.TargetId == "id") {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
