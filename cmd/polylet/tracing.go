package main

import (
	tracingapi "k8s.io/component-base/tracing/api/v1"

	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// addTracing makes podsync send spans when the configuration has tracing.
func addTracing(out *podsyncservice.Config, t *tracingapi.TracingConfiguration) {
	if t == nil {
		return
	}
	out.TraceEndpoint = new(string)
	if t.Endpoint != nil {
		*out.TraceEndpoint = *t.Endpoint
	}
	if t.SamplingRatePerMillion != nil {
		out.TraceSamplingPerMillion = *t.SamplingRatePerMillion
	}
}
