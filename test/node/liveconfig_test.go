package node_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/liveconf"
)

// TestAConfigurationChangesLiveAndABadOneGoesBackWithoutAPodNoticing edits the file of a
// node whose pods are probed.
func TestAConfigurationChangesLiveAndABadOneGoesBackWithoutAPodNoticing(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet reads its configuration when it starts, only")
	}
	h := build(t, plan{supervised: true, flags: []string{"--config-deadline=10s"}})
	const pods = 3
	for n := range pods {
		h.create(webApp(fmt.Sprintf("bystander-%d", n)))
	}
	for n := range pods {
		h.waitReady(fmt.Sprintf("bystander-%d", n), 3*time.Minute)
	}
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()
	good, err := os.ReadFile(h.node.ConfigFile)
	h.must(err)

	started := h.pids()
	good = h.configure(good, "maxPods", 123)
	h.eventually(30*time.Second, "the Node takes 123 pods", func() error { return h.takesPods("123") })
	h.eventually(time.Minute, "the configuration is good", func() error {
		events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=ConfigurationApplied"})
		return boolError(err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, "maxPods: 250 → 123"), "%v %v", events.Items, err)
	})
	for service, pid := range h.pids() {
		if owner := service == "podsync" || service == "nodestatus"; owner == (pid == started[service]) {
			t.Errorf("%s was process %d and is %d", service, started[service], pid)
		}
	}

	started = h.pids()
	for n, field := range []string{"containerLogMaxFiles", "imageGCHighThresholdPercent"} {
		good = h.configure(good, field, 4+n*90) // which podsync takes while it runs
		h.awaitState(field+" is good", func(s liveconf.State) error {
			return boolError(s.Phase == liveconf.Good && s.Generation == uint64(3+n), "generation %d", s.Generation)
		})
	}
	h.wantPIDs(started)
	h.must(os.WriteFile(h.node.ConfigFile, []byte("kind: KubeletConfiguration\nmaxPods: [\n"), 0o600))
	h.statusSaysOf("not taken", h.node.ConfigFile, "neither YAML nor JSON")
	h.configure(good, "cgroupDriver", "systemd")
	h.statusSaysOf("not taken", "cgroupDriver", "drain the node")
	h.wantPIDs(started)
	if n := h.nodeEvents("ConfigurationRefused"); n < 2 {
		t.Errorf("%d events say that the file is refused", n)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	h.must(err)
	defer taken.Close()
	h.configure(good, "healthzPort", taken.Addr().(*net.TCPAddr).Port)
	h.statusSaysOf("went back", "healthzPort", "address already in use", "bad-")
	h.eventually(time.Minute, "the node is healthy where it was", func() error { return h.node.Healthy(h.ctx) })
	h.eventually(time.Minute, "the Node's events say so", func() error {
		return boolError(h.nodeEvents("ConfigurationWentBack") == 1, "%d events", h.nodeEvents("ConfigurationWentBack"))
	})
	h.must(h.takesPods("123"))
	started = h.pids()
	h.configure(good, "maxPods", 123)
	h.eventually(30*time.Second, "the file is good again", func() error {
		out, err := h.polylet("status")
		return boolError(err == nil && !strings.Contains(out, "nodestatus: configuration:"), "%s %v", out, err)
	})
	h.wantPIDs(started)

	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}
	h.node.Stop()
	h.must(os.WriteFile(h.node.ConfigFile, []byte("kind: KubeletConfiguration\nmaxPods: [\n"), 0o600))
	h.must(h.node.Start(h.ctx)) // with the last known good one
	h.statusSaysOf("not taken", h.node.ConfigFile)
	after, err := h.containerIDs()
	h.must(err)
	for id, pod := range before {
		if after[id] != pod {
			t.Errorf("container %.12s of pod %s does not run any more", id, pod)
		}
	}
}

// configure writes the file with one field changed, in one step.
func (h *house) configure(document []byte, field string, value any) []byte {
	h.Helper()
	fields := map[string]any{}
	h.must(yaml.Unmarshal(document, &fields))
	fields[field] = value
	out, err := yaml.Marshal(fields)
	h.must(err)
	fresh := h.node.ConfigFile + ".new"
	h.must(os.WriteFile(fresh, out, 0o600))
	h.must(os.Rename(fresh, h.node.ConfigFile))
	return out
}

func (h *house) takesPods(want string) error { return h.takesPodsOn(nodeName, want) }

func (h *house) takesPodsOn(name, want string) error {
	node, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got := node.Status.Capacity[corev1.ResourcePods]
	return boolError(got.String() == want, "%s", got.String())
}

// statusSaysOf waits until polylet status says all of this of the configuration.
func (h *house) statusSaysOf(words ...string) {
	h.Helper()
	h.eventually(time.Minute, fmt.Sprintf("polylet status says %q", words), func() error {
		out, err := h.polylet("status")
		for line := range strings.Lines(out) {
			all := strings.Contains(line, "nodestatus: configuration: ")
			for _, word := range words {
				all = all && strings.Contains(line, word)
			}
			if all {
				return nil
			}
		}
		return fmt.Errorf("%s %w", out, err)
	})
}
