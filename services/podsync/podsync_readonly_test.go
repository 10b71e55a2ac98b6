package podsync

import (
	"cmp"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Of every kind of volume that there is, the containers of a pod may write only
// into those that are theirs. A kind that comes to the API or to podsync and
// stands in no table here fails.
func TestContainersMayWriteIntoNoVolumeThatPodsyncWrites(t *testing.T) {
	writable := map[string]bool{"EmptyDir": true, "HostPath": true, "NFS": true}
	made := map[string]v1.VolumeSource{
		"EmptyDir":    {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"HostPath":    {HostPath: &v1.HostPathVolumeSource{Path: "/"}},
		"Secret":      {Secret: &v1.SecretVolumeSource{SecretName: "s"}},
		"ConfigMap":   {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}},
		"DownwardAPI": {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "l", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
		"Projected":   {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}}}},
		"NFS":         {NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}},
		"Image":       {Image: &v1.ImageVolumeSource{Reference: "app:1", PullPolicy: v1.PullIfNotPresent}},
	}
	refused := map[string]string{
		"CSI":                   "not found in the list of registered CSI drivers", // it is its driver's
		"PersistentVolumeClaim": "failed to fetch PVC from API server",             // what it is bound to is whose claim it is
		"Ephemeral":             "failed to fetch PVC from API server",
		"AzureDisk":             "cannot be a directory's name", // its disk has no name here
		"ISCSI":                 "iqn",                          // a disk's files are its pods', and this one is nowhere
		"FC":                    "no fc disk information found",
	}
	for _, kind := range []string{"GCEPersistentDisk", "AWSElasticBlockStore", "Cinder", "AzureFile", "VsphereVolume", "PortworxVolume"} {
		refused[kind] = "in-tree volume of a CSI driver" // which is asked for it, as of one of CSI
	}
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
		api := fakeapiserver.New(fakeapiserver.Config{})
		s := startInCluster(t, rt, api)
		core := api.Admin().CoreV1()
		if _, err := core.Secrets("default").Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := core.ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kinds := reflect.TypeFor[v1.VolumeSource]()
		for i := range kinds.NumField() {
			kind := kinds.Field(i).Name
			source, ours := made[kind]
			if !ours {
				reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(kinds.Field(i).Type.Elem()))
			}
			if _, err := core.Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(kind), Namespace: "default"},
				Spec: v1.PodSpec{
					NodeName: "n1", ServiceAccountName: "default", Volumes: []v1.Volume{{Name: "v", VolumeSource: source}},
					Containers: []v1.Container{{
						Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent,
						VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}},
					}},
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		readOnly := map[string]bool{} // by pod
		for _, c := range rt.Snapshot().Containers {
			for _, m := range c.Config.GetMounts() {
				if m.GetContainerPath() == "/v" {
					readOnly[c.Config.GetLabels()["io.kubernetes.pod.name"]] = m.GetReadonly()
				}
			}
		}
		for i := range kinds.NumField() {
			kind := kinds.Field(i).Name
			is, mounted := readOnly[strings.ToLower(kind)]
			if _, ours := made[kind]; ours != mounted {
				t.Errorf("a %s volume is mounted: %v, want %v; %s", kind, mounted, ours, waitsOf(t, s, kind))
			}
			if mounted && is == writable[kind] {
				t.Errorf("a %s volume is read-only: %v", kind, is)
			}
			if waits := waitsOf(t, s, kind); !mounted && !strings.Contains(waits, cmp.Or(refused[kind], "are not supported yet")) {
				t.Errorf("a %s volume may be new: it is refused with %q", kind, waits)
			}
		}
	})
}

// waitsOf is what the pod of a kind waits for.
func waitsOf(t *testing.T, s *Service, kind string) string {
	t.Helper()
	resp, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: strings.ToLower(kind)}})
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, w := range resp.GetWaits() {
		out += w.GetReason() + "; "
	}
	return out
}
