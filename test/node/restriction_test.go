package node_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request is what is read of one line of the apiserver's audit log.
type request struct {
	Verb           string
	RequestURI     string
	ObjectRef      struct{ Resource, Subresource string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// TestANodeAsksForNothingThatItMayNot has the Node authorizer and NodeRestriction
// judge all that a node asks for while it runs pods of many kinds.
func TestANodeAsksForNothingThatItMayNot(t *testing.T) {
	h := build(t, plan{audit: true})
	h.must(h.node.AddStaticPod("mirrored.yaml", staticManifest("mirrored", "http", "port=8080")))
	h.createDependencies()
	h.create(dependent("dependent"))
	h.waitReady("dependent", 2*time.Minute)
	h.waitReady("mirrored-"+nodeName, time.Minute)
	if out, err := h.kubectl("exec", "dependent", "--", "/testapp", "stat", "path=/secret/key"); err != nil || !strings.Contains(out, "mode=") {
		t.Errorf("the Secret's file: %q, %v", out, err)
	}
	if _, err := h.kubectl("get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/stats/summary"); err != nil {
		t.Error(err)
	}
	// Somebody who is none of the apiserver's own: nodestatus has them reviewed.
	h.askWithAToken()
	h.delete("dependent")
	h.waitGone("dependent", time.Minute)
	wanted := map[string]bool{
		"create nodes": false, "patch nodes/status": false, "create leases": false, "list pods": false, "patch pods/status": false, "create pods": false,
		"get secrets": false, "get configmaps": false, "get persistentvolumeclaims": false, "get persistentvolumes": false,
		"create serviceaccounts/token": false, "create tokenreviews": false, "create subjectaccessreviews": false, "create events": false,
	}
	for _, r := range h.requests() {
		what := strings.TrimSuffix(r.Verb+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")
		if what == "list secrets" || what == "list configmaps" { // of one, by name, before it is watched
			what = "get" + strings.TrimPrefix(what, "list")
		}
		if _, ok := wanted[what]; ok {
			wanted[what] = true
		}
		if r.ResponseStatus.Code == 401 || r.ResponseStatus.Code == 403 {
			t.Errorf("refused: %s %s: %s", r.Verb, r.RequestURI, r.ResponseStatus.Message)
		}
	}
	for what, seen := range wanted {
		if !seen {
			t.Errorf("the node never did %s, and so this shows nothing of it", what)
		}
	}
}

// requests are all that nodes have asked for so far.
func (h *house) requests() (all []request) {
	h.Helper()
	data, err := os.ReadFile(h.cluster.AuditLog)
	h.must(err)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		h.must(json.Unmarshal(lines.Bytes(), &r))
		all = append(all, r)
	}
	h.must(lines.Err())
	return all
}

// createDependencies makes what dependent's pod refers to.
func (h *house) createDependencies() {
	h.Helper()
	core, ns := h.cluster.Client.CoreV1(), metav1.NamespaceDefault
	meta := metav1.ObjectMeta{Name: "needed"}
	_, err := core.Secrets(ns).Create(h.ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	h.must(err)
	_, err = core.ConfigMaps(ns).Create(h.ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	h.must(err)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	dir, err := h.inst.Mkdir("volume")
	h.must(err)
	_, err = core.PersistentVolumes().Create(h.ctx, &corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: ns, Name: "needed"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
	}}, metav1.CreateOptions{})
	h.must(err)
	claim, err := core.PersistentVolumeClaims(ns).Create(h.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: "needed", StorageClassName: ptr(""), Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{})
	h.must(err)
	// No controller runs that would bind it.
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes, Capacity: size}
	_, err = core.PersistentVolumeClaims(ns).UpdateStatus(h.ctx, claim, metav1.UpdateOptions{})
	h.must(err)
}

// dependent is a pod that needs objects of every kind that a node may read.
func dependent(name string) *corev1.Pod {
	p := webApp(name)
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "needed"}}
	c := &p.Spec.Containers[0]
	c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "needed"}}}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "needed"}}},
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "needed"}}},
	}
	for _, v := range p.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

// askWithAToken has the default service account ask the node's API.
func (h *house) askWithAToken() {
	h.Helper()
	token, err := h.kubectl("create", "token", "default")
	h.must(err)
	h.eventually(time.Minute, "a service account without rights is refused", func() error {
		code, err := h.asks("/pods", strings.TrimSpace(token))
		return boolError(err == nil && code == http.StatusForbidden, "it is answered %d, %v", code, err)
	})
}
