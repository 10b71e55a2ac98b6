package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway"
)

// newGatewayCommand is `polylet gateway`: it serves the node's HTTP API. It
// takes the kubelet's flags, of which it needs those about serving, and needs
// to read only the certificates that they name: nodestatus has the kubeconfig.
func newGatewayCommand() *cobra.Command {
	return serviceCommand(service.Gateway, "Serve the node's HTTP API", runGateway)
}

func runGateway(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	if err := loaded.RefuseOpen(); err != nil {
		return err
	}
	d, err := daemon.New(withConfiguration(ctx, loaded, daemon.Options{
		Service:     service.Gateway,
		NodeName:    loaded.NodeName,
		SocketDir:   loaded.Flags.SocketDir,
		SocketGroup: loaded.Flags.SocketGroup,
		Tracing:     traced(loaded),
		Access:      accessTo(service.Gateway),
		Users:       serviceUsers(loaded),
		// systemd hides other users' processes from it (ProtectProc).
		HiddenCallers: true,
	}))
	if err != nil {
		return err
	}
	if err := clientmetrics.RegisterQueues(d.Metrics()); err != nil {
		return err
	}
	peers := map[string]grpc.ClientConnInterface{}
	for _, name := range service.All() {
		conn, err := d.Dial(name)
		if err != nil {
			return err
		}
		defer conn.Close()
		peers[name] = conn
	}
	cfg, err := gatewayConfig(loaded)
	if err != nil {
		return err
	}
	for _, gate := range loaded.Gates() {
		cfg.FeatureGates = append(cfg.FeatureGates, gateway.Gate(gate))
	}
	g, err := gateway.New(cfg, gateway.Deps{
		Metrics: d.Metrics(), Health: d.Health(), Log: d.Log(),
		Podsync: peers[service.Podsync], Probes: peers[service.Probes], Stats: peers[service.Stats], Nodestatus: peers[service.Nodestatus],
		Self: peers[service.Gateway], Trace: d.Tracing().Handler,
	})
	if err != nil {
		return err
	}
	g.Register(d.Server())
	return d.Run(ctx, g.Run)
}

func gatewayConfig(loaded *kubeletconfig.Loaded) (gateway.Config, error) {
	c := loaded.Config
	authn, authz := c.Authentication, c.Authorization
	out := gateway.Config{
		NodeName:          loaded.NodeName,
		CertFile:          c.TLSCertFile,
		KeyFile:           c.TLSPrivateKeyFile,
		CertHosts:         certHosts(loaded),
		ClientCAFile:      authn.X509.ClientCAFile,
		AlwaysAllow:       authz.Mode == kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow,
		TokenCacheTTL:     authn.Webhook.CacheTTL.Duration,
		AllowCacheTTL:     authz.Webhook.CacheAuthorizedTTL.Duration,
		DenyCacheTTL:      authz.Webhook.CacheUnauthorizedTTL.Duration,
		DebuggingHandlers: isTrue(c.EnableDebuggingHandlers),
		ConfigJSON:        func() []byte { return loaded.Current().NodeConfigzJSON() },
		SystemLogHandler:  isTrue(c.EnableSystemLogHandler),
		SystemLogQuery:    isTrue(c.EnableSystemLogQuery) && loaded.FeatureEnabled("NodeLogQuery"),
		ProfilingHandler:  isTrue(c.EnableProfilingHandler),
		DebugFlagsHandler: isTrue(c.EnableDebugFlagsHandler),
		Statusz:           loaded.FeatureEnabled("ComponentStatusz"),
		Flagz:             loaded.FeatureEnabled("ComponentFlagz"),
		Checkpoint:        loaded.FeatureEnabled("ContainerCheckpoint"),
		LogStreams:        loaded.FeatureEnabled("PodLogsQuerySplitStreams"),
		KeepWebSockets:    !loaded.FeatureEnabled("ExtendWebSocketsToKubelet"),
		KubernetesVersion: buildinfo.KubernetesVersion,
		FlagValues:        loaded.FlagValues(),

		CompatibleStreamVerbs: loaded.Flags.CompatibleStreamVerbs,

		Standalone:            loaded.Standalone,
		Anonymous:             isTrue(authn.Anonymous.Enabled),
		WebhookAuthentication: isTrue(authn.Webhook.Enabled),
	}
	if isTrue(c.EnableServer) {
		out.SecureAddress = hostPort(c.Address, c.Port)
	}
	// enableServer is about the port above only, as for the kubelet.
	if c.ReadOnlyPort > 0 {
		out.ReadOnlyAddress = hostPort(c.Address, c.ReadOnlyPort)
	}
	if c.HealthzPort != nil && *c.HealthzPort > 0 {
		out.HealthzAddress = hostPort(c.HealthzBindAddress, *c.HealthzPort)
	}
	out.PageAddress = loaded.Flags.NodePageAddress
	if loaded.WaitsForServing() {
		// Whoever gets it from the apiserver writes certificate and key there.
		out.CertFile, out.KeyFile = loaded.ServingFiles()
		out.WaitForCert = true
	} else {
		out.FallbackCertFile, out.FallbackKeyFile = loaded.ServingFiles()
	}
	return out, addTLS(&out, c)
}

func addTLS(out *gateway.Config, c *kubeletv1beta1.KubeletConfiguration) (err error) {
	if out.MinTLSVersion, err = cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		return fmt.Errorf("tlsMinVersion: %w", err)
	}
	if out.CipherSuites, err = cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
		return fmt.Errorf("tlsCipherSuites: %w", err)
	}
	if out.Curves, err = cliflag.TLSCurvePreferences(c.TLSCurvePreferences); err != nil {
		return fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	return nil
}

// certHosts are the names and addresses of a self-signed certificate.
func certHosts(loaded *kubeletconfig.Loaded) []string {
	hosts := []string{loaded.NodeName}
	for text := range strings.SplitSeq(loaded.Flags.NodeIP, ",") {
		if ip := net.ParseIP(strings.TrimSpace(text)); ip != nil && !ip.IsUnspecified() {
			hosts = append(hosts, ip.String())
		}
	}
	return append(hosts, "localhost", "127.0.0.1")
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func isTrue(b *bool) bool { return b != nil && *b }
