package criconfig

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

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
