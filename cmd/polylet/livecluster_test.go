package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/liveconf/assigned"
	"github.com/polylet/polylet/services/nodestatus"
)

// assigning is a nodestatus to which the cluster assigns one document after the other.
type assigning struct {
	nodestatusv1.UnimplementedNodeStatusServiceServer
	documents chan *nodestatusv1.AssignedConfiguration
}

func (a *assigning) WatchAssignedConfiguration(_ *nodestatusv1.WatchAssignedConfigurationRequest, stream grpc.ServerStreamingServer[nodestatusv1.WatchAssignedConfigurationResponse]) error {
	for revision := uint64(1); ; revision++ {
		select {
		case <-stream.Context().Done():
			return nil
		case d := <-a.documents:
			if err := stream.Send(&nodestatusv1.WatchAssignedConfigurationResponse{Epoch: 1, Revision: revision, Snapshot: revision == 1, Assigned: d}); err != nil {
				return err
			}
		}
	}
}

func TestTheOwnerTakesWhatNodestatusSaysAndTellsWhatBecameOfIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the server has to be root's")
	}
	dir, err := os.MkdirTemp("", "cluster") // t.TempDir's is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	loaded := load(t, "--hostname-override=n1", "--config="+written(t, "k.yaml", aConfiguration+"maxPods: 9\n"), "--root-dir="+filepath.Join(dir, "root"),
		"--kubeconfig=/none", "--dynamic-config-dir="+filepath.Join(dir, "dynamic"), "--socket-dir="+filepath.Join(dir, "s"), "--config-deadline=1s")
	sock, err := net.Listen("unix", filepath.Join(mkdir(t, dir, "s"), "nodestatus.sock"))
	if err != nil {
		t.Fatal(err)
	}
	peer := &assigning{documents: make(chan *nodestatusv1.AssignedConfiguration)}
	server := grpc.NewServer()
	nodestatusv1.RegisterNodeStatusServiceServer(server, peer)
	go func() { _ = server.Serve(sock) }() // ends with Stop
	defer server.Stop()
	n := &nodeRun{loaded: loaded, log: klog.Background()} // which has no services to ask
	l, err := n.chooseConfiguration(loaded, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	becomes(t, filepath.Join(dir, "dynamic", "lastKnownGood.json"), "n1") // with the file alone
	peer.documents <- &nodestatusv1.AssignedConfiguration{Namespace: "ns", Name: "c", Key: "kubelet", ResourceVersion: "4", Document: aConfiguration + "maxPods: 11\n"}
	told := filepath.Join(dir, "s", "nodestatus", assignedFile)
	becomes(t, told, `"lastKnownGood":"ns/c@4"`)
	if h := n.handed.Load(); h.loaded.Config.MaxPods != 11 || h.loaded.Origins()["maxPods"] != "ConfigMap ns/c" {
		t.Errorf("%d pods, set by %v", h.loaded.Config.MaxPods, h.loaded.Origins())
	}
	peer.documents <- &nodestatusv1.AssignedConfiguration{Namespace: "ns", Name: "c", Key: "kubelet", ResourceVersion: "5", Document: aConfiguration + "readOnlyPort: 10255\n"}
	becomes(t, told, "readOnlyPort")
	becomes(t, filepath.Join(dir, "s", "nodestatus", stateFile), `"phase":"Refused"`)
	var shown nodestatus.Assigned
	showAssigned(told, func(a nodestatus.Assigned) { shown = a }, klog.Background())
	if shown.Assigned != "ns/c@5" || shown.Active != "ns/c@4" || shown.Error == "" {
		t.Errorf("%+v", shown)
	}
	showAssigned(filepath.Join(dir, "none"), func(nodestatus.Assigned) { t.Error("nothing is told of what is not there") }, klog.Background())
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	again, err := (&nodeRun{loaded: loaded, log: klog.Background()}).chooseConfiguration(loaded, nil, false)
	if err != nil || again.node.handed.Load().loaded.Config.MaxPods != 11 || again.controller == nil {
		t.Errorf("a start before nodestatus says anything: %v", err)
	}
}

// TestATakenOverNodestatusCannotNameADocumentAsItLikes: its name is repeated for each field
// that it sets, in what this process writes and sends.
func TestATakenOverNodestatusCannotNameADocumentAsItLikes(t *testing.T) {
	dir := t.TempDir()
	l := &live{cluster: assigned.Open(assigned.Config{Dir: dir, Node: "n1", Deadline: time.Second})}
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan string)
	var taking sync.WaitGroup
	taking.Go(func() { l.cluster.TakeIn(ctx, func() { taken <- l.cluster.View().Assigned }) })
	defer taking.Wait()
	defer cancel()
	if err := l.take(&nodestatusv1.AssignedConfiguration{Namespace: "ns", Name: strings.Repeat("c", 1<<20), Key: "kubelet"}); err == nil || len(err.Error()) > 10<<10 {
		t.Errorf("a name of 1 MiB: %.200v", err)
	}
	if err := l.take(&nodestatusv1.AssignedConfiguration{Namespace: "ns", Name: "c", Key: "kubelet", ResourceVersion: "4"}); err != nil {
		t.Errorf("as it is called: %v", err)
	}
	if got := <-taken; got != "ns/c@4" {
		t.Errorf("%q is assigned", got)
	}
	if err := l.take(nil); err != nil {
		t.Errorf("none: %v", err)
	}
	if got := <-taken; got != "" {
		t.Errorf("%q is assigned", got)
	}
}

func mkdir(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWithoutAnApiserverOrAnOwnerTheClusterIsNoSource(t *testing.T) {
	loaded := load(t, "--hostname-override=n1", "--config="+written(t, "k.yaml", aConfiguration), "--root-dir="+t.TempDir(), "--dynamic-config-dir="+t.TempDir())
	if _, err := (&nodeRun{loaded: loaded, log: klog.Background()}).chooseConfiguration(loaded, nil, false); !errors.Is(err, errNoCluster) {
		t.Errorf("standalone: %v", err)
	}
	loaded.Flags.LiveConfig = false
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := runNode(ctx, loaded); !errors.Is(err, errClusterUnowned) {
		t.Errorf("without an owner: %v", err)
	}
}
