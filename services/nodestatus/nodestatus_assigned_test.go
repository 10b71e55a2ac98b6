package nodestatus

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

func TestTheOwnerOfTheConfigurationHearsWhatTheClusterAssigns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change = func(c *Config) { c.DynamicConfiguration = true }
		service, stop := w.start()
		defer stop()
		srv := grpctest.New(func(s *grpc.Server) { service.Register(s) })
		defer srv.Close()
		conn, err := srv.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := nodestatusv1.NewNodeStatusServiceClient(conn).WatchAssignedConfiguration(ctx, &nodestatusv1.WatchAssignedConfigurationRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if f, err := stream.Recv(); err != nil || !f.GetSnapshot() || f.GetAssigned() != nil {
			t.Errorf("nothing is assigned: %v %v", f, err)
		}
		admin := w.api.Admin().CoreV1()
		if _, err := admin.ConfigMaps("ns").Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"kubelet": "text"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		annotate := func(value string) {
			t.Helper()
			patch := `{"metadata":{"annotations":{"polylet.dev/configuration":` + value + `}}}`
			if _, err := admin.Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		annotate(`"ns/c"`)
		if f, err := stream.Recv(); err != nil || f.GetAssigned().GetDocument() != "text" || f.GetAssigned().GetNamespace() != "ns" || f.GetAssigned().GetName() != "c" || f.GetAssigned().GetUid() == "" {
			t.Errorf("%v %v", f, err)
		}
		service.ShowAssigned(Assigned{Assigned: "ns/c@1"})
		time.Sleep(time.Second)
		if got := w.api.Node("n1").Annotations["polylet.dev/configuration-assigned"]; got != "ns/c@1" {
			t.Errorf("the Node says %q", got)
		}
		annotate("null")
		if f, err := stream.Recv(); err != nil || f.GetAssigned() != nil || f.GetSnapshot() {
			t.Errorf("taken away: %v %v", f, err)
		}
	})
}

func TestTheClusterIsNoSourceUnlessItIsAskedToBe(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var asked atomic.Bool
		w.refuses = func(q fakeapiserver.Request) bool {
			if q.Resource == "configmaps" {
				asked.Store(true)
			}
			return false
		}
		service, stop := w.start()
		defer stop()
		srv := grpctest.New(func(s *grpc.Server) { service.Register(s) })
		defer srv.Close()
		conn, err := srv.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := nodestatusv1.NewNodeStatusServiceClient(conn).WatchAssignedConfiguration(t.Context(), &nodestatusv1.WatchAssignedConfigurationRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if code := status.Code(err); err == nil || code == codes.OK {
			t.Errorf("it answers %v", err)
		}
		service.ShowAssigned(Assigned{Assigned: "x"})
		time.Sleep(time.Minute)
		if asked.Load() || w.api.Node("n1").Annotations["polylet.dev/configuration-assigned"] != "" {
			t.Error("it asks for ConfigMaps")
		}
	})
}
