package podsync

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// everyKind is a pod for which podsync makes something of everything that it makes.
func everyKind(host string) *v1.Pod {
	dir, file, group, no := v1.HostPathDirectoryOrCreate, v1.HostPathFileOrCreate, int64(4711), false
	secret := &v1.SecretVolumeSource{SecretName: "s"}
	config := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}
	items := []v1.DownwardAPIVolumeFile{{Path: "deep/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}
	volumes := map[string]v1.VolumeSource{
		"disk":      {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"memory":    {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
		"secret":    {Secret: secret},
		"config":    {ConfigMap: config},
		"downward":  {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}},
		"host-dir":  {HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(host, "new/dir"), Type: &dir}},
		"host-file": {HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(host, "file"), Type: &file}},
		"projected": {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: config.LocalObjectReference}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: map[string]string{"a": "b"}},
		Spec: v1.PodSpec{
			NodeName: "n1", ServiceAccountName: "default", HostUsers: &no, SecurityContext: &v1.PodSecurityContext{FSGroup: &group},
			Containers: []v1.Container{{
				Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log",
				StartupProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}},
			}},
		},
	}
	if os.Geteuid() != 0 {
		pod.Spec.SecurityContext = nil // giving files to a group is root's
	}
	for name, source := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "disk", MountPath: "/sub", SubPath: "x/y"})
	return pod
}

// Whoever may log in to the node but is not root reads no secret and writes
// nothing that podsync has made, though it is started without any umask.
func TestOthersOfTheNodeReadNoSecretAndWriteNothing(t *testing.T) {
	for _, tc := range []struct {
		umask int
		// open: the directory that all is in was made by somebody else, for all to enter.
		open string
	}{{0, "kubelet/pods"}, {0, "kubelet"}, {0, ""}, {0o022, "kubelet/pods"}, {0o077, ""}} {
		t.Run(fmt.Sprintf("umask %03o, open %s", tc.umask, tc.open), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // As /var is.
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, tc.open), 0o755); err != nil { //nolint:gosec // See there.
				t.Fatal(err)
			}
			before := unix.Umask(tc.umask) // of the whole process: no test beside it runs
			defer unix.Umask(before)
			synctest.Test(t, func(t *testing.T) { makeEverything(t, dir) })
			judgeModes(t, dir)
		})
	}
}

// makeEverything lets a podsync in dir make all that it makes, and leaves it there.
func makeEverything(t *testing.T, dir string) {
	rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
	api := fakeapiserver.New(fakeapiserver.Config{})
	core := api.Admin().CoreV1()
	if _, err := core.Secrets("default").Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"deep.key": []byte("top secret")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := startInClusterWith(t, rt, api, func(c *Config, d *Deps) {
		c.RootDir, c.Logs.Dir = filepath.Join(dir, "kubelet"), filepath.Join(dir, "log", "pods")
		d.FreePercent = func(string) (float64, error) { return 50, nil } // whatever the machine's disk has
	}, func(*Service) {})
	if _, err := core.Pods("default").Create(t.Context(), everyKind(filepath.Join(dir, "host")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if st := api.Pod("default", "p").Status; st.Phase != v1.PodRunning {
		t.Fatalf("the pod is %+v", st)
	}
	req := &podsyncv1.CheckpointContainerRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: "p"}, Container: "c"}
	if _, err := s.server.CheckpointContainer(t.Context(), req); err != nil && !strings.Contains(err.Error(), "nimplemented") {
		t.Fatal(err)
	}
}

// judgeModes looks at all paths below dir. What others cannot come to is judged
// by the directory that keeps them out.
func judgeModes(t *testing.T, dir string) {
	t.Helper()
	var seen []string
	closed := "" // the directory that others cannot enter, while below it
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		rel, mode := strings.TrimPrefix(path, dir), info.Mode()
		seen = append(seen, rel)
		st := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert,errcheck // It is this on Linux.
		if int(st.Uid) != os.Geteuid() {
			t.Errorf("%s is the user %d's", rel, st.Uid)
		}
		if closed != "" && strings.HasPrefix(path, closed+"/") || mode&fs.ModeSymlink != 0 {
			return nil
		}
		closed = ""
		if mode.IsDir() && mode&0o005 == 0 {
			closed = path
		}
		if mode&0o022 != 0 {
			t.Errorf("%s is %v: others than its owner may write", rel, mode)
		}
		if mode.IsRegular() && mode&0o004 != 0 {
			if data, err := os.ReadFile(path); err != nil || len(data) > 0 {
				t.Errorf("%s is %v, and what is in it may be read by all: %q, %v", rel, mode, data, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// What is not there was not judged.
	for _, want := range []string{
		"/volumes/kubernetes.io~secret/secret/..data", "/volumes/kubernetes.io~projected/projected/token", "/volumes/kubernetes.io~empty-dir/disk/x/y",
		"/volumes/kubernetes.io~empty-dir/memory", "/volumes/kubernetes.io~downward-api/downward/deep", "/volumes/kubernetes.io~configmap/config/k",
		"/etc-hosts", "/userns", "/containers/c", "/volume-subpaths", "/kubelet/checkpoints", "/log/pods/default_p_", "/host/new/dir", "/host/file", "/kubelet/polylet", "/kubelet/plugins",
	} {
		if !slices.ContainsFunc(seen, func(path string) bool { return strings.Contains(path, want) }) {
			t.Errorf("nothing like %s was made; there are %q", want, seen)
		}
	}
}
