package node_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/instance"
)

// otherCluster is a second control plane, which signs what nodes ask for.
func (h *house) otherCluster() *cluster.Cluster {
	h.Helper()
	inst, err := instance.New()
	h.must(err)
	h.Cleanup(func() {
		if err := inst.Remove(); err != nil {
			h.Error(err)
		}
	})
	other, err := cluster.Start(h.ctx, cluster.Config{Instance: inst, Controllers: true, Progress: os.Stderr})
	h.must(err)
	h.Cleanup(other.Kill)
	h.must(other.ApproveNodes(h.ctx))
	return other
}

// The files of a node go under a running agent, as those that kubeadm reset removes where
// it can stop nothing, and it joins another cluster by kubeadm join: nobody restarts it. The
// pods of the first cluster end, those of the node itself run on.
func TestANodeWhoseFilesWereRemovedJoinsAnotherClusterByItself(t *testing.T) {
	if onKubelet() {
		t.Skip("a kubelet has to be restarted for that")
	}
	h := build(t, plan{controllers: true, supervised: true, bootstrap: true, noNode: true, overrides: map[string]any{"rotateCertificates": true}})
	h.must(h.cluster.ApproveNodes(h.ctx))
	h.must(h.node.AddStaticPod("early.yaml", staticManifest("early", "http", "port=8080")))
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	early := h.waitReady("early-"+nodeName, time.Minute)
	h.create(webApp("first"))
	h.waitReady("first", time.Minute)
	h.must(os.Remove(h.bootstrap))
	other := *h
	other.cluster = h.otherCluster()
	token, err := other.cluster.BootstrapKubeconfig(h.ctx, "abcdef", time.Hour)
	h.must(err)
	before := h.pids()

	h.must(os.Remove(h.node.Kubeconfig))
	files, err := filepath.Glob(h.inst.Path("pki", "*"))
	h.must(err)
	for _, file := range files {
		h.must(os.Remove(file))
	}
	h.statusSays("files that are gone", "there is no kubeconfig "+h.node.Kubeconfig)
	h.must(os.Rename(token, h.bootstrap))
	other.waitNodeReady()
	h.must(os.Remove(h.bootstrap))
	other.create(webApp("second"))
	other.waitReady("second", time.Minute)
	again := other.waitReady("early-"+nodeName, time.Minute)
	if now, was := again.Status.ContainerStatuses[0], early.Status.ContainerStatuses[0]; now.ContainerID != was.ContainerID || now.RestartCount != was.RestartCount {
		t.Errorf("the node's own pod was restarted: %s, it was %s", describe(again), describe(early))
	}
	h.eventually(time.Minute, "the first cluster's pod is gone from the runtime", func() error { return h.noSandboxOf("first") })
	h.statusSays("nothing", "")
	for name, pid := range h.pids() {
		if restarts := name == "podsync" || name == "nodestatus"; (before[name] != pid) != restarts {
			t.Errorf("%s was restarted: %v", name, !restarts)
		}
	}
}
