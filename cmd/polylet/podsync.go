package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/tracing"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// podsyncGCPercent lets podsync's heap grow to double: it works in bursts, and
// with half as many collections a pod's start costs a sixth less CPU.
const podsyncGCPercent = 100

// newPodsyncCommand is `polylet podsync`: it runs the pods.
func newPodsyncCommand() *cobra.Command {
	return serviceCommand(service.Podsync, "Run the pods that the apiserver and static manifests ask for", runPodsync)
}

func runPodsync(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	// Of the five it is the one that must not work beside another agent.
	ctx, release, err := holdLock(ctx, loaded, klog.FromContext(ctx))
	if err != nil {
		return err
	}
	defer release()
	d, err := daemon.New(withConfiguration(ctx, loaded, daemon.Options{
		SecretConfigJSON: func() []byte { return loaded.Current().SecretConfigzJSON() },
		Service:          service.Podsync,
		NodeName:         loaded.NodeName,
		SocketDir:        loaded.Flags.SocketDir,
		SocketGroup:      loaded.Flags.SocketGroup,
		Tracing:          traced(loaded),
		GCPercent:        podsyncGCPercent,
		Access:           accessTo(service.Podsync),
		Users:            serviceUsers(loaded),
	}))
	if err != nil {
		return err
	}
	if err := clientmetrics.Register(d.Metrics()); err != nil {
		return err
	}
	sayWithoutEffect(d, loaded)
	config, err := podsyncConfig(loaded)
	if err != nil {
		return err
	}
	addTracing(&config, loaded.Config.Tracing)
	deps := podsyncservice.Deps{Metrics: d.Metrics(), Health: d.Health(), Epoch: d.Epoch()}
	credential, err := podsyncClients(ctx, loaded, d.Tracing(), d.Log(), &deps)
	if err != nil {
		return err
	}
	runtime, err := podsyncservice.DialRuntime(loaded.Config.ContainerRuntimeEndpoint)
	if err != nil {
		return err
	}
	defer runtime.Close()
	deps.Runtime, deps.Images = runtime, runtime
	if endpoint := loaded.Config.ImageServiceEndpoint; endpoint != "" && endpoint != loaded.Config.ContainerRuntimeEndpoint {
		images, err := podsyncservice.DialRuntime(endpoint)
		if err != nil {
			return err
		}
		defer images.Close()
		deps.Images = images
	}
	p, err := podsyncservice.New(config, deps)
	if err != nil {
		return err
	}
	inPlaceOf(ctx).add(func(next *kubeletconfig.Loaded) error { return takeLimits(p, next) }, limitFields()...)
	p.Register(d.Server())
	longest := max(2*loaded.Config.SyncFrequency.Duration, syncLoopTimeout)
	d.AddCheck(daemon.Check{Name: "syncloop", Run: func(context.Context) error { return p.SyncLoop(longest) }})
	return d.Run(ctx, append(followCredential(credential, credentialSource(loaded), d.Health()), p.Run)...)
}

// takeLimits has podsync keep to other limits of images and logs.
func takeLimits(p *podsyncservice.Service, next *kubeletconfig.Loaded) error {
	config, err := podsyncConfig(next)
	if err != nil {
		return err
	}
	p.Change(config.Images, config.Logs)
	return nil
}

// syncLoopTimeout is how long podsync's loop may take at least until it counts
// as stuck.
const syncLoopTimeout = 5 * time.Minute

// podsyncClients makes the clients of the apiserver; none standalone. Events
// have a rate of their own, so that they never hold a status up.
func podsyncClients(ctx context.Context, loaded *kubeletconfig.Loaded, spans *tracing.Provider, log klog.Logger, deps *podsyncservice.Deps) (*kubeclient.Follower, error) {
	if loaded.Standalone {
		return nil, nil
	}
	c := loaded.Config
	credential := kubeclient.Follow(credentialSource(loaded), log)
	cfg := credential.Config(float32(*c.KubeAPIQPS), int(c.KubeAPIBurst),
		"polylet-podsync/"+buildinfo.Get().Version, kubeclient.ContentType(c.ContentType), kubeclient.Wrapped(spans.Transport))
	var err error
	if deps.Client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("client for apiserver %s: %w", cfg.Host, err)
	}
	deps.Events, err = eventsClient(ctx, cfg, c)
	return credential, err
}

// eventsClient is a client for events, with their own rate.
func eventsClient(ctx context.Context, cfg *rest.Config, c *kubeletv1beta1.KubeletConfiguration) (kubernetes.Interface, error) {
	rate, err := kubeclient.NewRate(float32(*c.EventRecordQPS), int(c.EventBurst))
	if err != nil {
		return nil, fmt.Errorf("eventRecordQPS and eventBurst: %w", err)
	}
	inPlaceOf(ctx).add(func(next *kubeletconfig.Loaded) error {
		return rate.Set(float32(*next.Config.EventRecordQPS), int(next.Config.EventBurst))
	}, eventFields()...)
	client, err := kubernetes.NewForConfig(kubeclient.Rated(cfg, rate))
	if err != nil {
		return nil, fmt.Errorf("client for events to apiserver %s: %w", cfg.Host, err)
	}
	return client, nil
}
