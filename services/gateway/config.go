package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/componentmetrics"
	"github.com/polylet/polylet/services/gateway/internal/listen"
)

// Config is what an operator can choose, from KubeletConfiguration and flags.
type Config struct {
	// NodeName is the name of the Node, which permissions are about.
	NodeName string

	// SecureAddress is host:port of the API with TLS; empty serves none.
	SecureAddress string
	// ReadOnlyAddress is host:port of the API without TLS and without streams;
	// empty serves none.
	ReadOnlyAddress string
	// HealthzAddress is host:port of /healthz alone; empty serves none.
	HealthzAddress string
	// PageAddress is host:port of the node's page for people, which asks nobody
	// who they are: a loopback address, unless the network in front of it does.
	// Empty serves none.
	PageAddress string

	// CertFile and KeyFile are the serving pair that the operator gave.
	CertFile, KeyFile string
	// WaitForCert is true when another process will write the serving pair:
	// until then a self-signed one is shown.
	WaitForCert bool
	// FallbackCertFile and FallbackKeyFile are used when no pair was given;
	// made there when they are missing and can be written.
	FallbackCertFile, FallbackKeyFile string
	// CertHosts are the names and addresses of a self-signed certificate.
	CertHosts []string
	// MinTLSVersion, CipherSuites and Curves are crypto/tls's; zero is its default.
	MinTLSVersion uint16
	CipherSuites  []uint16
	Curves        []tls.CurveID

	// ClientCAFile verifies client certificates; empty asks for none.
	ClientCAFile string
	// Anonymous lets requests without credentials be system:anonymous.
	Anonymous bool
	// Standalone is true without an apiserver. Else nodestatus asks it, for
	// WebhookAuthentication and unless AlwaysAllow.
	Standalone bool
	// WebhookAuthentication asks the apiserver about bearer tokens.
	WebhookAuthentication bool
	// TokenCacheTTL is how long its answers are kept.
	TokenCacheTTL time.Duration
	// AlwaysAllow authorises everybody who is authenticated; otherwise the
	// apiserver is asked, and without one nobody is authorised.
	AlwaysAllow bool
	// AllowCacheTTL and DenyCacheTTL are how long its answers are kept.
	AllowCacheTTL, DenyCacheTTL time.Duration
	// CompatibleStreamVerbs authorises exec, attach, run and port-forward by
	// the HTTP method, as the kubelet does, instead of always as create.
	CompatibleStreamVerbs bool

	// KeepWebSockets hands the WebSockets of streams on to the runtime as they
	// are, instead of translating and tunnelling them: the feature gate
	// ExtendWebSocketsToKubelet is off.
	KeepWebSockets bool

	// FeatureGates are shown in the metrics.
	FeatureGates []Gate

	// DebuggingHandlers serves logs, streams and the runtime's pods, and all
	// that follows.
	DebuggingHandlers bool
	// SystemLogHandler serves the node's logs at /logs/; SystemLogQuery lets
	// services be asked for there.
	SystemLogHandler, SystemLogQuery bool
	// ProfilingHandler serves /debug/pprof/, DebugFlagsHandler /debug/flags/v.
	ProfilingHandler, DebugFlagsHandler bool
	// Statusz, Flagz and Checkpoint serve these paths: the feature gates
	// ComponentStatusz, ComponentFlagz and ContainerCheckpoint.
	Statusz, Flagz, Checkpoint bool
	// LogStreams lets logs be asked for by stream: the feature gate
	// PodLogsQuerySplitStreams.
	LogStreams bool
	// KubernetesVersion is shown at /statusz: whose behaviour this is.
	KubernetesVersion string
	// FlagValues are the flags in effect by name, shown at /flagz.
	FlagValues map[string]string

	// Limits of every port; nil is listen's defaults.
	Limits *listen.Limits

	// ConfigJSON is the configuration in effect, shown at /configz while
	// podsync is away.
	ConfigJSON func() []byte
}

// Gate is a feature gate as it is in effect.
type Gate = componentmetrics.Gate

func (c Config) validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("gateway: Config.NodeName is empty"))
	}
	for name, address := range map[string]string{
		"SecureAddress": c.SecureAddress, "ReadOnlyAddress": c.ReadOnlyAddress, "HealthzAddress": c.HealthzAddress,
		"PageAddress": c.PageAddress,
	} {
		if address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("gateway: Config.%s: %w: use host:port", name, err))
		}
	}
	return errors.Join(errs...)
}
