package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// restartedNode is a fakeNode that was started anew: shop/cart runs and nobody has told
// it of that pod, if heard is zero because the apiserver is away.
type restartedNode struct {
	fakeNode
	heard time.Time
}

func (n restartedNode) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	if n.heard.IsZero() {
		return &podsyncv1.GetRuntimeResponse{}, nil
	}
	return &podsyncv1.GetRuntimeResponse{SourcesReadyTime: timestamppb.New(n.heard)}, nil
}

func (restartedNode) ListRuntimePods(context.Context, *podsyncv1.ListRuntimePodsRequest) (*podsyncv1.ListRuntimePodsResponse, error) {
	out := &podsyncv1.ListRuntimePodsResponse{}
	for _, m := range []metav1.ObjectMeta{{Namespace: "shop", Name: "cart", UID: "9"}, {Namespace: "default", Name: "web", UID: "1"}} {
		raw, err := (&v1.Pod{ObjectMeta: m}).Marshal()
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, raw)
	}
	return out, nil
}

func startRestarted(t *testing.T, heard time.Time) string {
	t.Helper()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "podsync.sock"))
	if err != nil {
		t.Fatal(err)
	}
	node, s := restartedNode{heard: heard}, grpc.NewServer()
	podsapi.RegisterPodsServer(s, node)
	podsyncv1.RegisterPodSyncServiceServer(s, node)
	commonv1.RegisterCommonServiceServer(s, node)
	go func() { _ = s.Serve(socket) }()
	t.Cleanup(s.Stop)
	return "--socket-dir=" + dir
}

func TestPodsThatRunAndAreNotKnownYetAreNotSaidToBeNone(t *testing.T) {
	dir := startRestarted(t, time.Time{})
	for _, args := range [][]string{{"pods", dir}, {"pods", dir, "-o", "json"}} {
		out, err := polylet(t, args...)
		if err != nil {
			t.Error(err)
		}
		has(t, out, "pods may be missing here", "polylet status", "goes on", "shop/cart")
		if strings.Contains(out, "shop/cart, default/web") || strings.Contains(out, "default/web, shop/cart") {
			t.Errorf("a pod that is listed counts as unknown: %s", out)
		}
	}
	_, err := polylet(t, "logs", dir, "shop/cart")
	if err == nil {
		t.Fatal("the logs of a pod that is not known were found")
	}
	has(t, err.Error(), "shop/cart", "not known yet", "polylet status", "/var/log/pods")
}

func TestOnceAllSourcesWereHeardThePodsAreAll(t *testing.T) {
	dir := startRestarted(t, time.Now())
	if out, err := polylet(t, "pods", dir); err != nil || strings.Contains(out, "missing") {
		t.Errorf("%v; %s", err, out)
	}
	if _, err := polylet(t, "logs", dir, "shop/cart"); err == nil || !strings.Contains(err.Error(), "no pod shop/cart on this node") {
		t.Errorf("%v", err)
	}
}
