// Package configgen makes changes of a KubeletConfiguration from a seed, for tests: those
// that a running node takes, those that nothing takes, and those that only a start takes.
// It owns the values; it must never load, write or judge a configuration.
package configgen

import (
	"fmt"
	"maps"
	"math/rand/v2"
)

// Kind is what becomes of a change.
type Kind string

// Taken: a running node takes it. Invalid: it is no configuration. Fixed: it is one, and
// a running node cannot change to it.
const (
	Taken   Kind = "taken"
	Invalid Kind = "invalid"
	Fixed   Kind = "fixed"
)

// Change is one of a configuration's fields.
type Change struct {
	Kind Kind
	// Field is the name of the top-level field; empty: Text is the whole file.
	Field string
	// Value is what the field becomes; nil: it is left out.
	Value any
	// Text is a file that is no document, when Field is empty.
	Text string
	// Named is what an error must say of it; empty when it is taken.
	Named string
}

// String is for a test's log.
func (c Change) String() string {
	if c.Field == "" {
		return fmt.Sprintf("%s: file %q", c.Kind, c.Text)
	}
	return fmt.Sprintf("%s: %s = %v", c.Kind, c.Field, c.Value)
}

// Generator makes changes; the same seed makes the same ones.
type Generator struct{ random *rand.Rand }

// New returns one.
func New(seed uint64) *Generator { return &Generator{random: rand.New(rand.NewPCG(seed, 13))} }

// Next is a change: as often taken as not.
func (g *Generator) Next() Change {
	switch n := g.random.IntN(10); {
	case n < 5:
		return g.Taken()
	case n < 9:
		return g.Invalid()
	default:
		return pick(g, fixed())
	}
}

// Taken is a change that a running node takes. That it differs from what runs is not
// said.
func (g *Generator) Taken() Change {
	f := pick(g, takenFields())
	return Change{Kind: Taken, Field: f.name, Value: f.value(g)}
}

// Invalid is one that nothing takes.
func (g *Generator) Invalid() Change { return pick(g, invalid()) }

// IntN is a number below n, of the same seed.
func (g *Generator) IntN(n int) int { return g.random.IntN(n) }

func pick[T any](g *Generator, of []T) T { return of[g.random.IntN(len(of))] }

type field struct {
	name  string
	value func(*Generator) any
}

func one(name string, values ...any) field {
	return field{name, func(g *Generator) any { return pick(g, values) }}
}

func number(name string, low, high int) field {
	return field{name, func(g *Generator) any { return low + g.random.IntN(high-low+1) }}
}

func period(name string, low, high int) field {
	return field{name, func(g *Generator) any { return fmt.Sprintf("%ds", low+g.random.IntN(high-low+1)) }}
}

func onOff(name string) field { return one(name, true, false) }

func object(key string, values ...any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = map[string]any{key: v}
	}
	return out
}

// takenFields are fields of every service, with values by which no pod that runs is
// touched.
func takenFields() []field {
	return []field{
		number("maxPods", 110, 400), number("podsPerCore", 200, 300), number("podPidsLimit", 2000, 9000),
		number("registryPullQPS", 0, 50), number("registryBurst", 1, 50), number("eventRecordQPS", 20, 90), number("eventBurst", 90, 200),
		number("kubeAPIQPS", 30, 90), number("kubeAPIBurst", 60, 200), number("nodeStatusMaxImages", -1, 90),
		number("imageGCLowThresholdPercent", 10, 90), number("containerLogMaxFiles", 2, 9), number("containerLogMaxWorkers", 1, 5),
		number("nodeLeaseDurationSeconds", 30, 60),
		one("containerLogMaxSize", "1Mi", "5Mi", "20M", "100Mi"), one("clusterDomain", "cluster.local", "a.example", ""),
		one("clusterDNS", []any{"10.96.0.10"}, []any{"10.96.0.10", "fd00::a"}, nil),
		one("contentType", "application/json", "application/vnd.kubernetes.protobuf"),
		one("evictionHard", map[string]any{"memory.available": "40Mi", "nodefs.available": "1%"}, map[string]any{"memory.available": "60Mi"}),
		one("evictionMinimumReclaim", map[string]any{"memory.available": "1Mi"}, nil),
		one("systemReserved", map[string]any{"cpu": "10m", "memory": "20Mi"}, nil), one("kubeReserved", map[string]any{"cpu": "15m"}, nil),
		one("featureGates", map[string]any{"ContainerStopSignals": true}, map[string]any{"EnvFiles": false, "CSIVolumeHealth": true}, nil),
		one("tracing", map[string]any{"endpoint": "127.0.0.1:1", "samplingRatePerMillion": 1}, nil),
		one("logging", object("verbosity", 1, 2, 4)...), one("memorySwap", object("swapBehavior", "NoSwap", "")...),
		one("crashLoopBackOff", object("maxContainerRestartPeriod", "10s", "100s")...),
		one("tlsMinVersion", "VersionTLS12", "VersionTLS13"), one("tlsCipherSuites", []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, nil),
		one("allowedUnsafeSysctls", []any{"kernel.msg*"}, nil), one("staticPodURLHeader", map[string]any{"X-A": []any{"b"}}, nil),
		period("syncFrequency", 10, 90), period("fileCheckFrequency", 5, 40), period("httpCheckFrequency", 5, 40), period("runtimeRequestTimeout", 60, 240),
		period("nodeStatusUpdateFrequency", 5, 15), period("nodeStatusReportFrequency", 60, 300), period("volumeStatsAggPeriod", 10, 90),
		period("evictionPressureTransitionPeriod", 0, 300), period("imageMinimumGCAge", 60, 300), period("containerLogMonitorInterval", 3, 30),
		period("streamingConnectionIdleTimeout", 60, 7200),
		onOff("seccompDefault"), onOff("enableProfilingHandler"), onOff("enableDebugFlagsHandler"), onOff("enableContentionProfiling"),
		onOff("kernelMemcgNotification"), onOff("serializeImagePulls"), onOff("localStorageCapacityIsolation"), onOff("enableSystemLogQuery"),
	}
}

// invalid are changes that validation or reading refuses.
func invalid() []Change {
	bad := func(name string, value any, named string) Change {
		return Change{Kind: Invalid, Field: name, Value: value, Named: named}
	}
	file := func(text, named string) Change { return Change{Kind: Invalid, Text: text, Named: named} }
	return []Change{
		bad("maxPods", -1, "maxPods"), bad("maxPods", "many", "maxPods"), bad("port", 70000, "port"), bad("healthzPort", -3, "healthzPort"),
		bad("address", "nowhere", "address"), bad("tlsMinVersion", "VersionTLS9", "tlsMinVersion"), bad("syncFrequency", "soon", "soon"), bad("syncFrequency", "-1s", "syncFrequency"),
		bad("imageGCLowThresholdPercent", 101, "imageGCLowThresholdPercent"), bad("containerLogMaxSize", "big", "containerLogMaxSize"), bad("containerLogMaxFiles", 1, "containerLogMaxFiles"),
		bad("evictionHard", map[string]any{"memory.available": "much"}, "memory.available"), bad("evictionHard", map[string]any{"moon.available": "1%"}, "moon.available"),
		bad("featureGates", map[string]any{"NoSuchGate": true}, "NoSuchGate"), bad("logging", map[string]any{"format": "morse"}, "logging.format"),
		bad("registryBurst", -2, "registryBurst"), bad("authorization", map[string]any{"mode": "Trust"}, "authorization.mode"), bad("runOnce", true, "runOnce"),
		bad("containerLogMonitorInterval", "1s", "containerLogMonitorInterval"), bad("tlsCertFile", "/a.crt", "tlsCertFile"), bad("hairpinMode", "bent", "hairpinMode"),
		bad("enforceNodeAllocatable", []any{"everything"}, "enforceNodeAllocatable"), bad("kind", "Pod", "Pod"), bad("apiVersion", "kubelet.config.k8s.io/v9", "v9"),
		file("", "empty"), file("kind: KubeletConfiguration\nmaxPods: [\n", "neither YAML nor JSON"), file("\x00\x01\x02", "control characters"), file(`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config`, "neither YAML nor JSON"),
	}
}

// fixed are changes that a running node refuses.
func fixed() []Change {
	of := func(name string, value any) Change {
		return Change{Kind: Fixed, Field: name, Value: value, Named: name}
	}
	return []Change{
		of("cgroupDriver", "systemd"), of("podLogsDir", "/elsewhere"), of("staticPodPath", "/elsewhere"), of("oomScoreAdj", -998), of("maxOpenFiles", 900000),
		of("rotateCertificates", true), of("shutdownGracePeriod", "30s"), of("containerRuntimeEndpoint", "unix:///elsewhere.sock"), of("userNamespaces", map[string]any{"idsPerPod": 131072}),
	}
}

// With is a document's fields with the change in them; the fields themselves stay.
func (c Change) With(fields map[string]any) map[string]any {
	out := maps.Clone(fields)
	if c.Value == nil {
		delete(out, c.Field)
		return out
	}
	out[c.Field] = c.Value
	return out
}
