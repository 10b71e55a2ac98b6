// Package kubeclient builds the clients for the apiserver. It owns encoding,
// rate and identity of the requests; it must never make a request itself.
package kubeclient

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Content types: protobuf for Kubernetes' own types, JSON for all others.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	accept   = protobuf + ",application/json"
)

// Build reads a kubeconfig and returns the client and the configuration it was
// made from, whose QPS and Burst a caller may change for a client of its own.
// qps of 0 is client-go's default; burst bounds what goes out at once.
//
// A client certificate, key or token that the kubeconfig names as a file is
// read again when it changes, within minutes and without a restart; one that
// stands in the kubeconfig is not. Requests have no overall timeout, since
// watches last: set a deadline on the context of every other call.
func Build(kubeconfig string, qps float32, burst int, userAgent string, options ...Option) (*rest.Config, kubernetes.Interface, error) {
	cfg, err := Load(kubeconfig, qps, burst, userAgent, options...)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("client for apiserver %s from kubeconfig %s: %w", cfg.Host, kubeconfig, err)
	}
	return cfg, client, nil
}

// Load is Build without the client.
func Load(kubeconfig string, qps float32, burst int, userAgent string, options ...Option) (*rest.Config, error) {
	if kubeconfig == "" {
		return nil, errors.New("no kubeconfig: pass --kubeconfig, or run standalone without an apiserver")
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w%s", kubeconfig, err, mend(err))
	}
	cfg.QPS = qps
	cfg.Burst = burst
	cfg.ContentType = protobuf
	cfg.AcceptContentTypes = accept
	cfg.UserAgent = userAgent
	cfg.Wrap(WithAnswerTimeout)
	for _, option := range options {
		option(cfg)
	}
	return cfg, nil
}

// Option changes what Build and Load make.
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

// Rated returns a configuration like cfg with a rate limit of its own; 0 and
// less let requests out at any rate.
func Rated(cfg *rest.Config, qps float32, burst int) *rest.Config {
	const noLimit = -1
	out := rest.CopyConfig(cfg)
	if out.QPS, out.Burst = qps, burst; qps <= 0 {
		out.QPS = noLimit
	}
	return out
}

func mend(err error) string {
	if errors.Is(err, fs.ErrNotExist) || clientcmd.IsEmptyConfig(err) {
		return ": write it (kubeadm join does), or correct --kubeconfig"
	}
	return ""
}
