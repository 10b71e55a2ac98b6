package criconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/reason"
)

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

func TestWhatAContainerCannotBeIsAConfigurationError(t *testing.T) {
	volume := []v1.Volume{{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	for want, c := range map[string]v1.Container{
		`configmap "cm" not found`:                                                  {EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}}},
		`cannot find volume to mount into container: volume "no"`:                   {VolumeMounts: []v1.VolumeMount{{Name: "no", MountPath: "/x"}}},
		`failed to prepare subPath for volumeMount "e" of container "c": leads out`: {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPath: "bad"}}},
		`missing value for "NO"`:                                                    {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPathExpr: "$(NO)"}}},
		`not supported by the runtime handler ""`:                                   {VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)}}},
		"image will run as root":                                                    {SecurityContext: &v1.SecurityContext{RunAsNonRoot: ptr.To(true)}},
		`cannot find volume "x" to pass into container "c"`:                         {VolumeDevices: []v1.VolumeDevice{{Name: "x", DevicePath: "/dev/x"}}},
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
