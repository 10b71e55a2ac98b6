package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/test/harness/node"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// cloud does to the Node what an external cloud provider's controller does once it
// has found the machine.
const (
	cloudStatus = `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"},{"type":"ExternalIP","address":"203.0.113.9"},{"type":"Hostname","address":"` + nodeName + `"}]}}`
	cloudObject = `{"metadata":{"labels":{"topology.kubernetes.io/zone":"z1","node.kubernetes.io/instance-type":"huge"}},"spec":{"taints":null}}`
)

// TestWhatACloudSaysOfTheNodeStays starts a node with --cloud-provider=external,
// stands in for the cloud's controller on a real apiserver, and wants what that wrote
// to stay through heartbeats and the deaths of processes, and to be what pods see.
func TestWhatACloudSaysOfTheNodeStays(t *testing.T) {
	h := build(t, plan{
		flags:     []string{"--cloud-provider=external", "--provider-id=cloud://z1/m1"},
		overrides: map[string]any{"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s"},
	})
	nodes := h.cluster.Client.CoreV1().Nodes()
	get := func() *corev1.Node {
		h.Helper()
		n, err := nodes.Get(h.ctx, nodeName, metav1.GetOptions{})
		h.must(err)
		return n
	}
	n := get()
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized && t.Effect == corev1.TaintEffectNoSchedule }) || n.Spec.ProviderID != "cloud://z1/m1" {
		t.Fatalf("the Node joined with taints %v and provider ID %q", n.Spec.Taints, n.Spec.ProviderID)
	}
	_, err := nodes.Patch(h.ctx, nodeName, types.MergePatchType, []byte(cloudStatus), metav1.PatchOptions{}, "status")
	h.must(err)
	_, err = nodes.Patch(h.ctx, nodeName, types.MergePatchType, []byte(cloudObject), metav1.PatchOptions{})
	h.must(err)

	stays := func(when string) {
		h.Helper()
		since := metav1.Now()
		h.eventually(time.Minute, "a heartbeat "+when, func() error {
			for _, c := range get().Status.Conditions {
				if c.Type == corev1.NodeReady {
					return boolError(c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(since.Add(2*time.Second)), "Ready is %s, told at %s", c.Status, c.LastHeartbeatTime)
				}
			}
			return boolError(false, "no Ready condition")
		})
		n := get()
		var addresses []string
		for _, a := range n.Status.Addresses {
			addresses = append(addresses, fmt.Sprint(a.Type, " ", a.Address))
		}
		if want := []string{"InternalIP 192.0.2.9", "ExternalIP 203.0.113.9", "Hostname " + nodeName}; !slices.Equal(addresses, want) {
			t.Errorf("%s the addresses are %v, want %v", when, addresses, want)
		}
		if n.Labels[corev1.LabelTopologyZone] != "z1" || n.Labels[corev1.LabelInstanceTypeStable] != "huge" || n.Spec.ProviderID != "cloud://z1/m1" {
			t.Errorf("%s the labels are %v, the provider ID %q", when, n.Labels, n.Spec.ProviderID)
		}
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized }) {
			t.Errorf("%s the Node has the cloud's taint again: %v", when, n.Spec.Taints)
		}
	}
	stays("after the cloud found the machine")
	h.create(webApp("before"))
	if p := h.waitReady("before", time.Minute); p.Status.HostIP != "192.0.2.9" {
		t.Errorf("a pod's host IP is %q", p.Status.HostIP)
	}
	if !onKubelet() {
		h.killService(node.Nodestatus)
		h.killService(node.Podsync)
	}
	stays("after nodestatus was killed")
	h.create(webApp("after"))
	if p := h.waitReady("after", time.Minute); p.Status.HostIP != "192.0.2.9" {
		t.Errorf("with another podsync a pod's host IP is %q", p.Status.HostIP)
	}
}
