// Package source owns where pods come from: the apiserver's list-watch of this
// node, a directory of static pods and a URL that serves them. It merges them into one stream of
// complete, defaulted and validated pods. It must never decide whether a pod
// may run, and never keep a pod alive that its source no longer has.
package source

import (
	"context"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/health"
)

// The names of the sources, as they stand in the annotation kubernetes.io/config.source.
const (
	// API is the apiserver.
	API = "api"
	// File is the static pod path.
	File = "file"
	// HTTP is the static pod URL.
	HTTP = "http"
)

// Sink takes the merged stream. Its methods must not block. Pods are shared:
// nobody may change them.
type Sink interface {
	// Set says that a source wants pod, new or changed.
	Set(pod *v1.Pod, src string)
	// Remove says that a source no longer has the pod with this UID.
	Remove(uid types.UID, src string)
	// Doubt says whether some of what a source has could not be read since this
	// process started: what runs of static pods may be wanted though it was not Set.
	// Before the first call nothing is in doubt.
	Doubt(src string, some bool)
	// Ready says, once per source, that all that it has was Set, but for what is in
	// Doubt.
	Ready(src string)
}

// Mirrors takes what concerns mirror pods: the mirror pods that the apiserver
// has, which are not passed to the Sink, and the static pods to be mirrored.
// Its methods must not block.
type Mirrors interface {
	// SetStatic says that a static pod is wanted.
	SetStatic(pod *v1.Pod)
	// RemoveStatic says that it is not wanted any more.
	RemoveStatic(uid types.UID)
	// StaticReady says that all static pods were set.
	StaticReady()
	// SetMirror says that the apiserver has this mirror pod, new or changed.
	SetMirror(pod *v1.Pod)
	// RemoveMirror says that the mirror pod is gone from the apiserver.
	RemoveMirror(uid types.UID)
	// MirrorsReady says that all mirror pods were set.
	MirrorsReady()
}

// Events records events on pods and on the node.
type Events interface {
	// Node records an event on this node.
	Node(eventType, reason, message string)
	// Pod records one event.
	Pod(pod *v1.Pod, eventType, reason, message string)
}

// Notifier tells when something in a directory changed.
type Notifier interface {
	// Notify calls changed after each change of the directory (or of the one
	// file) at path until ctx is done. It returns an error when it cannot
	// watch; the caller lists again by time then, and retries.
	Notify(ctx context.Context, path string, changed func()) error
}

// RemovalNotifier is a Notifier that can also tell which files were removed. A
// file that is removed and put back at once looks unchanged to whoever lists the
// path afterwards, and yet its pod was not wanted in between.
type RemovalNotifier interface {
	Notifier
	// NotifyRemoved is Notify, and calls removed with the path of each file that
	// was removed or moved away, before changed.
	NotifyRemoved(ctx context.Context, path string, changed func(), removed func(file string)) error
}

// Config of the sources.
type Config struct {
	// NodeName is this node's name.
	NodeName string
	// StaticPodPath is a directory or a file with manifests; empty for none.
	StaticPodPath string
	// FileCheckFrequency is how often the path is listed though nothing told of
	// a change; 20 s when zero.
	FileCheckFrequency time.Duration
	// StaticPodURL serves a Pod or a PodList; empty for none.
	StaticPodURL string
	// StaticPodURLHeader goes along with each request to it; the values are
	// secrets, which no log and no error shows.
	StaticPodURLHeader map[string][]string
	// HTTPCheckFrequency is how often the URL is asked; 20 s when zero.
	HTTPCheckFrequency time.Duration
	// AllowAPIReferences lets static pods name objects of the apiserver (the
	// gate PreventStaticPodAPIReferences is off).
	AllowAPIReferences bool
	// MaxManifestBytes bounds one file and one answer; 10 MiB when zero.
	MaxManifestBytes int64
}

// Deps is what the sources are given.
type Deps struct {
	// Client is nil when there is no apiserver.
	Client kubernetes.Interface
	// Mirrors may be nil.
	Mirrors Mirrors
	// Events may be nil.
	Events Events
	// Health may be nil; "apiserver", "static pods" and "static pod URL" are reported.
	Health health.Reporter
	// Notifier is inotify when nil.
	Notifier Notifier
	// Restored is called when etcd was found to be restored from an older state; may be nil.
	Restored func()
	// Listed is called with the version of each list of the apiserver's pods and with
	// them, mirrors too, before they are Set; may be nil.
	Listed func(version string, pods []*v1.Pod)
	// Transport asks the static pod URL; http.DefaultTransport when nil.
	Transport http.RoundTripper
}
