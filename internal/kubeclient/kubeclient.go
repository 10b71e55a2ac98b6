// Package kubeclient builds the clients for the apiserver. It owns encoding, rate and
// identity of the requests: which certificate the node shows, and what becomes of
// connections when it is replaced. It must never make a request itself.
package kubeclient

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// Content types: protobuf for Kubernetes' own types, JSON for all others.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	accept   = protobuf + ",application/json"
)

// Config makes a configuration of clients that ask with the node's credential, whose
// QPS and Burst a caller may change for a client of its own. qps of 0 is client-go's
// default; burst bounds what goes out at once. Requests have no overall timeout, since
// watches last: set a deadline on the context of every other call.
func (f *Follower) Config(qps float32, burst int, userAgent string, options ...Option) *rest.Config {
	cfg := &rest.Config{Host: f.host, Transport: f, QPS: qps, Burst: burst, UserAgent: userAgent}
	cfg.ContentType = protobuf
	cfg.AcceptContentTypes = accept
	cfg.Wrap(WithAnswerTimeout)
	for _, option := range options {
		option(cfg)
	}
	return cfg
}

// Option changes what Config makes.
type Option func(*rest.Config)

// ContentType has requests sent in this type instead of protobuf, and takes
// what client-go takes then; empty leaves protobuf.
func ContentType(name string) Option {
	return func(cfg *rest.Config) {
		if name != "" && name != protobuf {
			cfg.ContentType, cfg.AcceptContentTypes = name, ""
		}
	}
}

// Wrapped has every request go through a transport around the one that sends it.
func Wrapped(wrap func(http.RoundTripper) http.RoundTripper) Option {
	return func(cfg *rest.Config) { cfg.Wrap(wrap) }
}

// Rated returns a configuration like cfg with a rate limit of its own.
func Rated(cfg *rest.Config, rate *Rate) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.RateLimiter = rate
	return out
}
