package main

import (
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/tracing"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// addTracing makes podsync send the steps of pods as spans when the
// configuration has tracing.
func addTracing(out *podsyncservice.Config, t *tracingapi.TracingConfiguration) {
	if cfg := tracingOf(t); cfg != nil {
		out.Tracing = &podsyncservice.TracingConfig{Endpoint: cfg.Endpoint, SamplingPerMillion: cfg.SamplingRatePerMillion}
	}
}

// traced is where a process sends spans of its calls; nil when the configuration
// has no tracing.
func traced(loaded *kubeletconfig.Loaded) *tracing.Config { return tracingOf(loaded.Config.Tracing) }

func tracingOf(t *tracingapi.TracingConfiguration) *tracing.Config {
	if t == nil {
		return nil
	}
	out := &tracing.Config{}
	if t.Endpoint != nil {
		out.Endpoint = *t.Endpoint
	}
	if t.SamplingRatePerMillion != nil {
		out.SamplingRatePerMillion = *t.SamplingRatePerMillion
	}
	return out
}
