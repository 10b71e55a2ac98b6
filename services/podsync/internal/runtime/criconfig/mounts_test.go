package criconfig

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/reason"
)

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
	f.volumes = map[string]string{"e": "/v/e", "s": "/v/s", "h": "/host", "r": "/v/r", "w": "/v/w", "n": "/v/n", "i": "/v/i", "f": "/v/f"}
	p := pod(v1.Container{
		Env: []v1.EnvVar{{Name: "SUB", Value: "name"}},
		VolumeMounts: []v1.VolumeMount{
			{Name: "e", MountPath: "/data"},
			{Name: "s", MountPath: "rel/secret"},
			{Name: "h", MountPath: "/h", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)},
			{Name: "e", MountPath: "/sub", SubPathExpr: "dir/$(SUB)", MountPropagation: ptr.To(v1.MountPropagationHostToContainer)},
			{Name: "r", MountPath: "/r"},
			{Name: "w", MountPath: "/w"},
			{Name: "h", MountPath: "/etc/hosts", MountPropagation: ptr.To(v1.MountPropagationBidirectional)},
			{Name: "n", MountPath: "/n"}, {Name: "i", MountPath: "/i"}, {Name: "f", MountPath: "/f"},
		},
	})
	p.Spec.RuntimeClassName = ptr.To("gvisor")
	p.Spec.Volumes = []v1.Volume{
		{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
		{Name: "r", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{ReadOnly: ptr.To(true)}}},
		{Name: "w", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}},
		{Name: "n", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{ReadOnly: true}}},
		{Name: "i", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{ReadOnly: true}}},
		{Name: "f", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{ReadOnly: true}}},
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
		"/v/r /r ro=true rro=false private relabel=false",
		"/v/w /w ro=false rro=false private relabel=true",
		"/host /etc/hosts ro=false rro=false bidirectional relabel=false",
		"/v/n /n ro=true rro=false private relabel=false",
		"/v/i /i ro=true rro=false private relabel=false",
		"/v/f /f ro=true rro=false private relabel=false",
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

func TestAClaimsVolumeIsReadOnlyIfThePodSaysSoAndTheHostsOwnKeepsItsLabels(t *testing.T) {
	f := newFixture(t)
	f.volumes, f.ofHost, f.groups = map[string]string{"l": "/v/l", "h": "/host"}, "h", []int64{7}
	p := pod(v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "l", MountPath: "/l"}, {Name: "h", MountPath: "/h"}}})
	p.Spec.Volumes = []v1.Volume{
		{Name: "l", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ReadOnly: true}}},
		{Name: "h", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
	}
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if m := got.Mounts[0]; !m.Readonly || m.SelinuxRelabel {
		t.Errorf("a read-only claim: %v", m)
	}
	if m := got.Mounts[1]; m.Readonly || m.SelinuxRelabel {
		t.Errorf("a claim of the host's: %v", m)
	}
	if g := got.Linux.SecurityContext.SupplementalGroups; !slices.Contains(g, 7) {
		t.Errorf("groups %v", g)
	}
	p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}}
	if got, err := f.container(t, p); err != nil || !got.Mounts[0].Readonly || got.Mounts[0].SelinuxRelabel {
		t.Errorf("a read-only one of before CSI: %v, %v", got, err)
	}
	f.volumes["l"] = "" // no container named it when it was set up
	if _, err := f.container(t, p); !errors.Is(err, errNoVolume) {
		t.Errorf("without its volume: %v", err)
	}
}

// Names of variables may be long, and what they hold short.
func TestASubPathOfALongExpressionIsWhatItComesTo(t *testing.T) {
	f := newFixture(t)
	f.volumes["e"] = "/v/e"
	name := strings.Repeat("A", 200)
	p := pod(v1.Container{Env: []v1.EnvVar{{Name: name, Value: "b"}}, VolumeMounts: []v1.VolumeMount{{Name: "e", MountPath: "/x", SubPathExpr: strings.Repeat("$("+name+")/", 25)}}})
	p.Spec.Volumes = []v1.Volume{{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if _, err := f.container(t, p); err != nil {
		t.Errorf("%.200v", err)
	}
}

func TestASubPathOfAVariableStaysInsideOfItsVolume(t *testing.T) {
	for value, want := range map[string]string{
		"../../etc": "must not contain '..'", "a/../b": "must not contain '..'", "..": "must not contain '..'", "/etc": "must not be an absolute path", "a/..b": "",
		// Without it, it would be all that is in the volume.
		"":                          `missing value for "A"`,
		strings.Repeat("a/", 1<<20): `the subPathExpr of volumeMount "NAME" of container "c": it comes to 4096 bytes or more, and a path has fewer`,
	} {
		for name, source := range map[string]v1.VolumeSource{"e": {EmptyDir: &v1.EmptyDirVolumeSource{}}, "img": {Image: &v1.ImageVolumeSource{Reference: "i"}}} {
			f := newFixture(t)
			f.volumes[name] = "/v/" + name
			p := pod(v1.Container{Env: []v1.EnvVar{{Name: "A", Value: value}}, VolumeMounts: []v1.VolumeMount{{Name: name, MountPath: "/x", SubPathExpr: "$(A)"}}})
			p.Spec.Volumes = []v1.Volume{{Name: name, VolumeSource: source}}
			_, err := f.builder.Container(t.Context(), Request{Pod: p, Container: "c", VolumeRefs: map[string]string{"img": "sha"}})
			if want := strings.ReplaceAll(want, "NAME", name); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%.50q of volume %s: %.300v, want %q", value, name, err, want)
			}
			if want != "" && len(f.subPaths) > 0 {
				t.Errorf("%.50s was looked for in the volume", value)
			}
		}
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

// The apiserver takes any path, and a kubelet mounts it below the root directory.
func TestATerminationLogIsAtAnAbsolutePath(t *testing.T) {
	for given, want := range map[string]string{"tmp/log": "/tmp/log", "/tmp//log/": "/tmp/log"} {
		f := newFixture(t)
		config, err := f.container(t, pod(v1.Container{TerminationMessagePath: given}))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Mounts[len(config.Mounts)-1].ContainerPath; got != want {
			t.Errorf("%q is mounted at %q, want %q", given, got, want)
		}
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
