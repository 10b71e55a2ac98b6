// Package zpage serves /statusz and /flagz with the apiserver library's pages.
// It must never show what is secret: flags are shown as they were given.
package zpage

import (
	"net/http"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
)

// component is the kubelet's name, which tools look for.
const component = "kubelet"

// one is a mux that takes one handler.
type one struct{ handler http.Handler }

// Handle implements the library's mux.
func (o *one) Handle(_ string, h http.Handler) { o.handler = h }

// Statusz serves /statusz of a node agent that does what the kubelet of a
// Kubernetes version does; paths are those that are served.
func Statusz(kubernetesVersion string, paths []string) http.Handler {
	mux := &one{}
	version := compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", "")
	statusz.Install(mux, component, statusz.NewRegistry(version, statusz.WithListedPaths(paths)))
	return mux.handler
}

// flags are names and values.
type flags map[string]string

// GetFlagz implements the library's Reader.
func (f flags) GetFlagz() map[string]string { return f }

// Flagz serves /flagz.
func Flagz(values map[string]string) http.Handler {
	mux := &one{}
	flagz.Install(mux, component, flags(values))
	return mux.handler
}
