package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/liveconf"
)

const (
	assignedMap      = "nodes"
	configAnnotation = "polylet.dev/configuration"
)

// TestTheClusterAssignsAConfigurationAndABadOneGoesBackWhateverIsAway: a ConfigMap that an
// annotation of the Node names is taken, tried and told of, over kills of who owns it, of
// who reads it and of who uses it, and while the apiserver is away.
func TestTheClusterAssignsAConfigurationAndABadOneGoesBackWhateverIsAway(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet has no source in the cluster any more")
	}
	kept := filepath.Join(t.TempDir(), "dynamic")
	h := build(t, plan{supervised: true, flags: []string{"--config-deadline=5s", "--dynamic-config-dir=" + kept}})
	for n := range 3 {
		h.create(webApp(fmt.Sprintf("bystander-%d", n)))
	}
	for n := range 3 {
		h.waitReady(fmt.Sprintf("bystander-%d", n), 3*time.Minute)
	}
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()
	h.letNodesRead(assignedMap)

	first := h.assign("maxPods: 130\n")
	h.annotate(configAnnotation, "kube-system/"+assignedMap)
	h.eventually(30*time.Second, "the Node takes 130 pods", func() error { return h.takesPods("130") })
	h.awaitAnnotations(map[string]string{"-assigned": first, "-active": first, "-last-known-good": first, "-error": ""})
	out, err := h.polylet("config")
	if err != nil || !strings.Contains(lineOf(out, "maxPods"), "ConfigMap kube-system/"+assignedMap) {
		t.Errorf("polylet config says %q, %v", lineOf(out, "maxPods"), err)
	}
	h.eventually(30*time.Second, "an event says that it is good", func() error { return h.hasEvent("ConfigurationApplied", "maxPods: 250 → 130") })

	second := h.assign("maxPods: 131\nkubeReserved: {memory: 10000Gi}\n") // no machine has it
	h.awaitAnnotations(map[string]string{"-assigned": second, "-active": first, "-last-known-good": first, "-error": "kubeReserved"})
	h.eventually(30*time.Second, "an event names it", func() error { return h.hasEvent("ConfigurationWentBack", "kubeReserved") })
	h.must(h.takesPods("130"))

	h.awaitState("it stands there", func(s liveconf.State) error {
		return boolError(s.Phase == liveconf.WentBack, "%s", s.Phase)
	})
	started := h.pids()
	third := h.assign("maxPods: 132\nauthentication: {anonymous: {enabled: true}}\nstaticPodPath: /tmp\n")
	h.awaitAnnotations(map[string]string{"-assigned": third, "-active": first, "-error": "authentication.anonymous.enabled"})
	h.eventually(30*time.Second, "an event names it", func() error { return h.hasEvent("ConfigurationRefused", "staticPodPath") })
	h.wantPIDs(started)

	for _, victim := range []string{"podsync", "nodestatus", "run"} {
		pods := map[string]string{"podsync": "141", "nodestatus": "142", "run": "143"}[victim]
		next := h.assign("maxPods: " + pods + "\n")
		h.awaitKept(kept, "assigned", next)
		h.killAnyOf(victim)
		h.eventually(time.Minute, pods+" pods, though "+victim+" was killed", func() error { return h.takesPods(pods) })
		h.awaitAnnotations(map[string]string{"-active": next, "-last-known-good": next, "-error": ""})
	}
	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}

	last := h.assign("maxPods: 150\n")
	h.awaitKept(kept, "assigned", last)
	h.cluster.APIServer.Kill() // for the whole of the switch
	h.awaitKept(kept, "active", last)
	for _, victim := range []string{"nodestatus", "podsync", "run"} {
		h.killAnyOf(victim)
	}
	h.node.Stop() // the machine goes down in the middle
	h.must(h.node.Start(h.ctx))
	h.eventually(time.Minute, "it runs though the apiserver is away", func() error {
		out, err := h.polylet("config")
		return boolError(err == nil && strings.Contains(lineOf(out, "maxPods"), "150"), "%s %v", lineOf(out, "maxPods"), err)
	})
	h.must(h.cluster.APIServer.Start(h.ctx))
	h.eventually(2*time.Minute, "the Node takes 150 pods", func() error { return h.takesPods("150") })
	h.awaitAnnotations(map[string]string{"-assigned": last, "-active": last, "-last-known-good": last, "-error": ""})

	h.annotate(configAnnotation, "")
	h.eventually(time.Minute, "the file's configuration is back", func() error { return h.takesPods("250") })
	h.awaitAnnotations(map[string]string{"-assigned": "", "-active": "", "-last-known-good": "", "-error": ""})
	after, err := h.containerIDs()
	h.must(err)
	for id, pod := range before {
		if after[id] != pod {
			t.Errorf("container %.12s of pod %s does not run any more", id, pod)
		}
	}
}

// letNodesRead is the Role of docs/configuration.md.
func (h *house) letNodesRead(names ...string) {
	h.Helper()
	rbac := h.cluster.Client.RbacV1()
	meta := metav1.ObjectMeta{Name: "node-configuration", Namespace: metav1.NamespaceSystem}
	_, err := rbac.Roles(meta.Namespace).Create(h.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: names, Verbs: []string{"get", "list", "watch"},
	}}}, metav1.CreateOptions{})
	h.must(err)
	_, err = rbac.RoleBindings(meta.Namespace).Create(h.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	h.must(err)
}

// assign writes the ConfigMap, and returns what annotations call this version of it.
func (h *house) assign(fields string) string {
	h.Helper()
	return h.writeConfigMap(assignedMap, fields)
}

func (h *house) writeConfigMap(name, fields string) string {
	h.Helper()
	configMaps := h.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{
		"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields,
	}}
	written, err := configMaps.Update(h.ctx, m, metav1.UpdateOptions{})
	if err != nil {
		written, err = configMaps.Create(h.ctx, m, metav1.CreateOptions{})
	}
	h.must(err)
	return "kube-system/" + name + "@" + written.ResourceVersion
}

// annotate sets an annotation of the Node; empty: takes it away.
func (h *house) annotate(name, value string) {
	h.Helper()
	var set any = value
	if value == "" {
		set = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: set}}})
	h.must(err)
	_, err = h.cluster.Client.CoreV1().Nodes().Patch(h.ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	h.must(err)
}

// awaitAnnotations waits for what the Node says of its configuration; of an error a part.
func (h *house) awaitAnnotations(want map[string]string) {
	h.Helper()
	h.awaitAnnotationsOf(nodeName, want)
}

func (h *house) awaitAnnotationsOf(name string, want map[string]string) {
	h.Helper()
	h.quietly(90*time.Second, fmt.Sprintf("Node %s says %v", name, want), func() error {
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, suffix := range slices.Sorted(maps.Keys(want)) {
			got := n.Annotations[configAnnotation+suffix]
			part := suffix == "-error" && want[suffix] != "" && strings.Contains(got, want[suffix])
			if got != want[suffix] && !part {
				return fmt.Errorf("%s is %q", suffix, got)
			}
		}
		return nil
	})
}

// awaitKept waits until a checkpoint has a version.
func (h *house) awaitKept(dir, name, version string) {
	h.Helper()
	_, resource, _ := strings.Cut(version, "@")
	h.quietly(30*time.Second, name+" is "+version, func() error {
		raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
		return boolError(err == nil && strings.Contains(string(raw), `"resourceVersion":"`+resource+`"`), "%s %v", raw, err)
	})
}

func (h *house) hasEvent(reason, word string) error {
	list, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return err
	}
	for _, e := range list.Items {
		if strings.Contains(e.Message, word) {
			return nil
		}
	}
	return fmt.Errorf("%d events", len(list.Items))
}

// lineOf is the line of a table that begins with a word.
func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word+" ") {
			return line
		}
	}
	return ""
}
