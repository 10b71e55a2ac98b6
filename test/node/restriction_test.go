package node_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request is what is read of one line of the apiserver's audit log.
type request struct {
	Verb           string
	RequestURI     string
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// verb is what a node needs to be allowed: it may read by any of three.
func (r request) verb() string {
	if slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
		return "read"
	}
	return r.Verb
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
	// A kubelet whose first attempt comes before its Node makes it ten seconds later.
	h.eventually(time.Minute, "the node has its lease", func() error {
		_, err := h.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(h.ctx, nodeName, metav1.GetOptions{})
		return err
	})
	wanted := map[string]bool{
		"create nodes": false, "patch nodes/status": false, "create leases": false, "read pods": false, "patch pods/status": false, "create pods": false,
		"read secrets": false, "read configmaps": false,
		"create serviceaccounts/token": false, "create tokenreviews": false, "create subjectaccessreviews": false, "create events": false,
	}
	all := h.requests()
	for n, r := range all {
		what := strings.TrimSuffix(r.verb()+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")
		if _, ok := wanted[what]; ok {
			wanted[what] = true
		}
		refused := r.ResponseStatus.Code == http.StatusUnauthorized || r.ResponseStatus.Code == http.StatusForbidden
		// A node may hear of a pod before the authorizer does, and asks again: a watch by a list.
		early := strings.Contains(r.ResponseStatus.Message, "no relationship found between node") && slices.ContainsFunc(all[n+1:], func(later request) bool {
			return later.verb() == r.verb() && later.ObjectRef == r.ObjectRef && later.ResponseStatus.Code < http.StatusMultipleChoices
		})
		if refused && !early {
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
}

// dependent is a pod that needs objects of every kind that a node may read.
func dependent(name string) *corev1.Pod {
	p := webApp(name)
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "needed"}}
	c := &p.Spec.Containers[0]
	c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "needed"}}}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "needed"}}},
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
