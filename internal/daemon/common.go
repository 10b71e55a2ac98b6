package daemon

import (
	"context"
	"fmt"
	"os"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/uds"
)

// familiesPerMessage keeps a response of GetMetrics far below the message limit.
const familiesPerMessage = 64

// common is CommonService for one process.
type common struct {
	commonv1.UnimplementedCommonServiceServer
	daemon *Daemon
}

// GetInfo implements CommonService.
func (c *common) GetInfo(context.Context, *commonv1.GetInfoRequest) (*commonv1.GetInfoResponse, error) {
	build := buildinfo.Get()
	resp := &commonv1.GetInfoResponse{
		Service:   c.daemon.opts.Service,
		Pid:       int32(os.Getpid()),
		StartTime: timestamppb.New(c.daemon.start),
		Epoch:     c.daemon.epoch,
		NodeName:  c.daemon.opts.NodeName,
		Build: &commonv1.Build{
			KubernetesVersion: build.KubernetesVersion,
			Version:           build.Version,
			Commit:            build.Commit,
			GoVersion:         build.GoVersion,
			Protocol:          build.Protocol,
		},
	}
	if runs := c.daemon.opts.ConfigRuns; runs != nil {
		resp.ConfigGeneration, resp.ConfigChecksum = runs()
	}
	for _, d := range c.daemon.tracker.Dependencies() {
		resp.Dependencies = append(resp.Dependencies, &commonv1.Dependency{
			Name: d.Name, Ready: d.Ready, Message: d.Message, Since: timestamppb.New(d.Since),
		})
	}
	return resp, nil
}

// GetMetrics implements CommonService.
func (c *common) GetMetrics(req *commonv1.GetMetricsRequest, stream grpc.ServerStreamingServer[commonv1.GetMetricsResponse]) error {
	gatherer, err := c.gatherer(req.GetRegistry())
	if err != nil {
		return err
	}
	families, err := gatherer.Gather()
	if err != nil && len(families) == 0 {
		return fmt.Errorf("gather metrics of registry %q: %w", req.GetRegistry(), err)
	}
	if err != nil {
		// Gather returns what it could collect; a broken collector must not hide the others.
		c.daemon.log.Error(err, "Some metrics could not be gathered", "registry", req.GetRegistry())
	}
	for len(families) > 0 {
		n := min(familiesPerMessage, len(families))
		if err := stream.Send(&commonv1.GetMetricsResponse{Families: families[:n]}); err != nil {
			return err
		}
		families = families[n:]
	}
	return nil
}

func (c *common) gatherer(name string) (prometheus.Gatherer, error) {
	if name == "" {
		return c.daemon.registry, nil
	}
	if g, ok := c.daemon.opts.ExtraRegistries[name]; ok {
		return g, nil
	}
	names := []string{`""`}
	for n := range c.daemon.opts.ExtraRegistries {
		names = append(names, n)
	}
	sort.Strings(names)
	return nil, fmt.Errorf("metrics registry %q: %w: %s has %v", name, rpcerr.ErrNotFound, c.daemon.opts.Service, names)
}

// GetConfig implements CommonService.
func (c *common) GetConfig(ctx context.Context, _ *commonv1.GetConfigRequest) (*commonv1.GetConfigResponse, error) {
	document := []byte("{}")
	peer, known := uds.PeerFrom(ctx)
	switch {
	case c.daemon.opts.SecretConfigJSON != nil && known && c.operates(peer):
		document = c.daemon.opts.SecretConfigJSON()
	case c.daemon.opts.ConfigJSON != nil:
		document = c.daemon.opts.ConfigJSON()
	}
	resp := &commonv1.GetConfigResponse{KubeletConfigurationJson: document}
	if c.daemon.opts.ConfigOrigins != nil {
		resp.Origins = c.daemon.opts.ConfigOrigins()
	}
	if c.daemon.opts.ConfigWithoutEffect != nil {
		resp.WithoutEffect = c.daemon.opts.ConfigWithoutEffect()
	}
	return resp, nil
}

// operates says whether the caller is root, or the gateway, through which people
// operate the node and which asks who may see what.
func (c *common) operates(peer uds.Peer) bool {
	gateway, known := c.daemon.opts.Users[service.Gateway]
	return peer.UID == 0 || known && peer.UID == gateway
}

// mostVerbose is the verbosity that others than root may set: above it, libraries
// log what they send and get, which may be anything.
const mostVerbose = 7

// mayLogAll says whether the caller may set any verbosity.
func mayLogAll(peer uds.Peer, known bool) bool { return known && peer.UID == 0 }

// SetLogLevel implements CommonService.
func (c *common) SetLogLevel(ctx context.Context, req *commonv1.SetLogLevelRequest) (*commonv1.SetLogLevelResponse, error) {
	if req.GetVerbosity() > mostVerbose && !mayLogAll(uds.PeerFrom(ctx)) {
		return nil, fmt.Errorf("set log verbosity %d: %w: above %d only root may, as its libraries then log what they send and get; as root, call polylet.common.v1.CommonService/SetLogLevel on the service's socket, or start it with -v=%d",
			req.GetVerbosity(), rpcerr.ErrForbidden, mostVerbose, req.GetVerbosity())
	}
	previous, err := SetVerbosity(req.GetVerbosity())
	if err != nil {
		return nil, err
	}
	c.daemon.log.Info("Log verbosity changed", "from", previous, "to", req.GetVerbosity())
	return &commonv1.SetLogLevelResponse{PreviousVerbosity: previous}, nil
}
