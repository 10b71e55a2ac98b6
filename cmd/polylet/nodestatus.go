package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/tracing"
	"github.com/polylet/polylet/services/nodestatus"
)

// noRateLimit lets requests out at any rate, heartbeats for one.
const noRateLimit = -1

// newNodestatusCommand is `polylet nodestatus`: it keeps the Node object and
// its Lease. It takes the kubelet's flags.
func newNodestatusCommand() *cobra.Command {
	return serviceCommand(service.Nodestatus, "Register the node, keep its status and its lease", runNodestatus)
}

func runNodestatus(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	d, err := daemon.New(withConfiguration(ctx, loaded, daemon.Options{
		Service:     service.Nodestatus,
		NodeName:    loaded.NodeName,
		SocketDir:   loaded.Flags.SocketDir,
		SocketGroup: loaded.Flags.SocketGroup,
		Tracing:     traced(loaded),
		Access:      accessTo(service.Nodestatus),
		Users:       serviceUsers(loaded),
		// Its user sees no others' processes where /proc is mounted with hidepid.
		HiddenCallers: true,
	}))
	if err != nil {
		return err
	}
	if err := clientmetrics.Register(d.Metrics()); err != nil {
		return err
	}
	deps := nodestatus.Deps{Metrics: d.Metrics(), Health: d.Health(), Note: d.Health().Note}
	if err := nodestatusClients(ctx, loaded, d.Tracing(), d.Log(), &deps); err != nil {
		return err
	}
	podsync, err := d.Dial(service.Podsync)
	if err != nil {
		return err
	}
	defer podsync.Close()
	stats, err := d.Dial(service.Stats)
	if err != nil {
		return err
	}
	defer stats.Close()
	deps.Podsync, deps.Stats = podsync, stats
	config := nodestatusConfig(loaded)
	if config.KubeReserved, config.SystemReserved, err = reservedLists(loaded.Config); err != nil {
		return err
	}
	s, err := nodestatus.New(config, deps)
	if err != nil {
		return err
	}
	s.Register(d.Server())
	parts := append(followCredential(deps.Credential, credentialSource(loaded), d.Health()), s.Run)
	return d.Run(ctx, append(parts, showsConfiguration(loaded, s, d.Health().Note, d.Log())...)...)
}

// nodestatusClients makes the clients of the apiserver; none standalone.
func nodestatusClients(ctx context.Context, loaded *kubeletconfig.Loaded, spans *tracing.Provider, log klog.Logger, deps *nodestatus.Deps) error {
	if loaded.Standalone {
		return nil
	}
	source := credentialSource(loaded)
	deps.Credential = kubeclient.Follow(source, log)
	deps.AskApiserver = asksApiserver(loaded.Flags.Kubeconfig)
	if source.Bootstrap != "" {
		deps.Bootstrap = func() (kubernetes.Interface, error) {
			return deps.Credential.BootstrapClient("polylet-nodestatus/bootstrap")
		}
	}
	// It may do so where it is root; where it is not, polylet run or polylet handout
	// does: whoever writes the kubeconfig says which apiserver podsync takes pods from.
	if os.Geteuid() == 0 {
		deps.WriteKubeconfig = func() error { return writeKubeconfig(source, log) }
	}
	cfg := deps.Credential.Config(float32(*loaded.Config.KubeAPIQPS), int(loaded.Config.KubeAPIBurst), "polylet-nodestatus",
		kubeclient.ContentType(loaded.Config.ContentType), kubeclient.Wrapped(spans.Transport))
	var err error
	if deps.Client, err = kubernetes.NewForConfig(cfg); err != nil {
		return fmt.Errorf("client for apiserver %s: %w", cfg.Host, err)
	}
	heartbeat := rest.CopyConfig(cfg)
	heartbeat.QPS = noRateLimit
	heartbeat.UserAgent = "polylet-nodestatus/heartbeat"
	if deps.Events, err = eventsClient(ctx, cfg, loaded.Config); err != nil {
		return err
	}
	if deps.Heartbeat, err = kubernetes.NewForConfig(heartbeat); err != nil {
		return fmt.Errorf("client for heartbeats to apiserver %s: %w", heartbeat.Host, err)
	}
	// The gateway keeps the answers; each question that is left holds up a request.
	reviews := rest.CopyConfig(heartbeat)
	reviews.UserAgent = "polylet-nodestatus/reviews"
	if deps.Reviews, err = kubernetes.NewForConfig(reviews); err != nil {
		return fmt.Errorf("client for reviews to apiserver %s: %w", reviews.Host, err)
	}
	transport, err := rest.TransportFor(heartbeat)
	if err != nil {
		return fmt.Errorf("transport for heartbeats to apiserver %s: %w", heartbeat.Host, err)
	}
	// Clients of equal configurations share one transport, so this closes
	// those of the heartbeats.
	deps.OnRepeatedFailure = func() { utilnet.CloseIdleConnectionsFor(transport) }
	return nil
}

func nodestatusConfig(loaded *kubeletconfig.Loaded) nodestatus.Config {
	c, f := loaded.Config, loaded.Flags
	return nodestatus.Config{
		NodeName:                         loaded.NodeName,
		NodeLabels:                       f.NodeLabels,
		RegisterNode:                     c.RegisterNode == nil || *c.RegisterNode,
		RegisterWithTaints:               c.RegisterWithTaints,
		ProviderID:                       c.ProviderID,
		ExternalCloud:                    f.CloudProvider == "external",
		NodeIP:                           f.NodeIP,
		NoController:                     !*c.EnableControllerAttachDetach,
		Port:                             c.Port,
		MaxPods:                          c.MaxPods,
		PodsPerCore:                      c.PodsPerCore,
		NoLocalStorage:                   c.LocalStorageCapacityIsolation != nil && !*c.LocalStorageCapacityIsolation,
		NodeStatusMaxImages:              *c.NodeStatusMaxImages,
		EvictionHard:                     c.EvictionHard,
		EvictionSoft:                     c.EvictionSoft,
		EvictionSoftGracePeriod:          c.EvictionSoftGracePeriod,
		EvictionMinimumReclaim:           c.EvictionMinimumReclaim,
		EvictionMaxPodGracePeriod:        time.Duration(c.EvictionMaxPodGracePeriod) * time.Second,
		PodsEnforced:                     slices.Contains(c.EnforceNodeAllocatable, "pods"),
		EvictionPressureTransitionPeriod: c.EvictionPressureTransitionPeriod.Duration,
		NodeStatusUpdateFrequency:        c.NodeStatusUpdateFrequency.Duration,
		NodeStatusReportFrequency:        c.NodeStatusReportFrequency.Duration,
		NodeLeaseDuration:                time.Duration(c.NodeLeaseDurationSeconds) * time.Second,
		DeclaredFeatures:                 declaredFeatures(loaded),
		StartEvents:                      startEvents(loaded, kubeletconfig.CgroupV2()),
		DynamicConfiguration:             f.DynamicConfigDir != "",
		CertDir:                          f.CertDir,
		RotateCertificates:               c.RotateCertificates,
		ServerTLSBootstrap:               loaded.WaitsForServing(),
		DNSOnlyCSR:                       loaded.FeatureEnabled("AllowDNSOnlyNodeCSR"),
		ShutdownGroups:                   shutdownGroups(loaded),
		ShutdownSocket:                   nodeshutdown.Socket(f.SocketDir),
		ShutdownState:                    filepath.Join(f.RootDir, nodeshutdown.StateFile),
	}
}

// declaredFeatures are what a scheduler and an apiserver may count on here
// beyond every node of the release, in order. The gateway speaks version 5 of
// the WebSocket protocol of exec and attach, and tunnels port-forward; podsync
// resizes pods as a whole and init containers in place, and restarts all
// containers of a pod when a rule says so, unless their gates are off. Nil with
// the gate NodeDeclaredFeatures off: nothing is declared then.
// Source: KEP-5328, k8s.io/component-helpers/nodedeclaredfeatures.
func declaredFeatures(loaded *kubeletconfig.Loaded) []string {
	if !loaded.FeatureEnabled("NodeDeclaredFeatures") {
		return nil
	}
	list := []string{}
	for _, gate := range []string{
		"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
	} {
		if loaded.FeatureEnabled(gate) {
			list = append(list, gate)
		}
	}
	return list
}
