package fakeapiserver

import (
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Config says how the server answers. The zero Config knows no tokens and allows
// everything.
type Config struct {
	// Seed varies UIDs and generated names.
	Seed int64
	// Faults is asked for each request except those of Admin. It must be safe for
	// concurrent use.
	Faults func(Request) Fault
	// OnWrite sees each change of an object, under the server's lock; it must not call the
	// Server. The objects are shared and must not be changed.
	OnWrite func(Write)
	// Tokens are what TokenReview accepts, besides tokens that the server issued.
	Tokens map[string]authnv1.UserInfo
	// Authorize answers SubjectAccessReview; nil allows everything.
	Authorize func(authzv1.SubjectAccessReviewSpec) (allowed bool, reason string)
	// SignCSR approves and signs each request at its creation with the certificate it
	// returns (PEM). Nil, or no certificate: requests stay pending. An error marks the
	// request Failed.
	SignCSR func(*certv1.CertificateSigningRequest) ([]byte, error)
	// Without are resources that are not served, such as clustertrustbundles.
	Without []string
	// NoWatchList answers sendInitialEvents with 422, as an apiserver without the
	// WatchList feature does; client-go then lists.
	NoWatchList bool
	// BookmarkEvery is the time between bookmarks; one minute when 0.
	BookmarkEvery time.Duration
	// History is how many events per resource a watch can go back; 10000 when 0.
	History int
}

func (c *Config) applyDefaults() {
	if c.BookmarkEvery == 0 {
		c.BookmarkEvery = time.Minute
	}
	if c.History == 0 {
		c.History = 10000
	}
}

// Request is what a fault decision sees.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb                          string
	Group, Version                string
	Resource, Subresource         string
	Namespace, Name               string
	UserAgent, FieldSelector, URL string
	// N counts the requests with the same verb, resource, subresource, namespace and name
	// from 0.
	N int
}

// Write is one change of one object.
type Write struct {
	At time.Time
	// Verb is create, update, patch or delete.
	Verb        string
	GVR         schema.GroupVersionResource
	Subresource string
	// Old is nil for what is new; New is nil for what is gone.
	Old, New  runtime.Object
	UserAgent string
}

// RequestLog is one finished request.
type RequestLog struct {
	Request
	At     time.Time
	Took   time.Duration
	Status int
	Admin  bool
}
