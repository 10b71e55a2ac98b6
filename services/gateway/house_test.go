package gateway

import (
	"context"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

// subresources are those of nodes that the API asks for.
func subresources() []string {
	return []string{"stats", "metrics", "log", "checkpoint", "statusz", "configz", "pods", "healthz", "proxy"}
}

// identities adds a token for who has one subresource only.
func identities(tokens map[string]authnv1.UserInfo) map[string]authnv1.UserInfo {
	for _, sub := range subresources() {
		tokens["only-"+sub] = authnv1.UserInfo{Username: "only-" + sub}
	}
	return tokens
}

// house is the other four processes and an apiserver.
type house struct {
	// metrics is the registry of the gateway that was started last.
	metrics                                  *prometheus.Registry
	podsync, probes, stats, nodestatus, self *grpctest.Server
	fake                                     *fakePodsync
	// numbers is stats' service.
	numbers *fakeStats
	// process is podsync's CommonService.
	process   *fakeProcess
	apiserver *fakeapiserver.Server
	// hang holds up reviews of tokens that begin with random- until it is
	// closed; nil holds up none.
	hang    chan struct{}
	runtime *httptest.Server
	// log is the gateway's; the process's when it has no sink.
	log logr.Logger
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{runtime: httptest.NewUnstartedServer(nil)}
	base := &url.URL{Scheme: "http", Host: h.runtime.Listener.Addr().String()}
	config := streaming.DefaultConfig
	config.BaseURL = base
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	streams, err := streaming.NewServer(config, fakeRuntime{ended: ended})
	if err != nil {
		t.Fatal(err)
	}
	h.runtime.Config.Handler = streams
	h.runtime.Start()
	h.fake = &fakePodsync{streams: streams}

	h.process = newFakeProcess("kubelet_running_pods")
	h.podsync = newPeer(h.process, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, h.fake) })
	h.probes = newPeer(newFakeProcess("prober_probe_total"), nil)
	h.numbers = &fakeStats{}
	h.stats = newPeer(newFakeProcess("polylet_stats_x"), func(s *grpc.Server) { statsv1.RegisterStatsServiceServer(s, h.numbers) })
	h.nodestatus = newPeer(newFakeProcess("kubelet_node_name"), func(s *grpc.Server) { nodestatusv1.RegisterNodeStatusServiceServer(s, fakeNodestatus{h: h}) })
	h.self = newPeer(newFakeProcess("polylet_gateway_x"), nil)
	h.apiserver = fakeapiserver.New(fakeapiserver.Config{
		Tokens: identities(map[string]authnv1.UserInfo{"admin-token": {Username: "admin"}, "metrics-token": {Username: "metrics"}, "reader-token": {Username: "reader"}}),
		Authorize: func(spec authzv1.SubjectAccessReviewSpec) (bool, string) {
			a := spec.ResourceAttributes
			switch spec.User {
			case "admin", "cert-admin":
				return a.Name == "n1" && a.Resource == "nodes", ""
			case "metrics":
				return a.Subresource == "metrics" && a.Verb == "get", ""
			case "reader":
				return a.Verb == "get", ""
			}
			only, alone := strings.CutPrefix(spec.User, "only-")
			return alone && a.Subresource == only && a.Resource == "nodes" && a.Name == "n1", ""
		},
	})
	t.Cleanup(func() {
		for _, p := range []*grpctest.Server{h.podsync, h.probes, h.stats, h.nodestatus, h.self} {
			p.Close()
		}
		h.apiserver.Close()
		h.runtime.CloseClientConnections()
		h.runtime.Close()
	})
	return h
}

// newPeer serves with the house's interceptors, which translate errors.
func newPeer(p *fakeProcess, register func(*grpc.Server)) *grpctest.Server {
	return grpctest.New(func(s *grpc.Server) {
		commonv1.RegisterCommonServiceServer(s, p)
		if register != nil {
			register(s)
		}
	}, grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		res, err := next(ctx, req)
		return res, rpcerr.ToStatus(err).Err()
	}), grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return rpcerr.ToStatus(next(srv, s)).Err()
	}))
}

func dial(t testing.TB, s *grpctest.Server) grpc.ClientConnInterface {
	t.Helper()
	conn, err := s.Dial(rpc.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// start runs a gateway against the house until the test ends.
func (h *house) start(t testing.TB, edit func(*Config)) *Service {
	t.Helper()
	cfg := Config{
		NodeName: "n1", SecureAddress: "127.0.0.1:0", ReadOnlyAddress: "127.0.0.1:0", HealthzAddress: "127.0.0.1:0",
		CertHosts: []string{"127.0.0.1"}, WebhookAuthentication: true, TokenCacheTTL: time.Minute,
		AllowCacheTTL: time.Minute, DenyCacheTTL: time.Minute, DebuggingHandlers: true,
		SystemLogHandler: true, SystemLogQuery: true, ProfilingHandler: true, DebugFlagsHandler: true,
		Statusz: true, Flagz: true, Checkpoint: true, KubernetesVersion: "v1.36.6", FlagValues: map[string]string{"v": "2"},
	}
	if edit != nil {
		edit(&cfg)
	}
	h.metrics = prometheus.NewRegistry()
	s, err := New(cfg, Deps{
		Metrics: h.metrics,
		Podsync: dial(t, h.podsync), Probes: dial(t, h.probes), Stats: dial(t, h.stats), Nodestatus: dial(t, h.nodestatus), Self: dial(t, h.self),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if h.log.GetSink() != nil {
		ctx = logr.NewContext(ctx, h.log)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after a clean stop", err)
		}
	})
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}
