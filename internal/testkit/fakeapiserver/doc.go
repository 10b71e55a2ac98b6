// Package fakeapiserver is a stateful kube-apiserver for tests: it owns the objects of
// the resources that a node agent touches, their resource versions, watches and graceful
// deletions, and answers over HTTP as the real one does, faults included.
//
// It is an http.Handler. RESTConfig reaches it in process, over channels and pipes only,
// so that client-go with its watches runs inside a testing/synctest bubble. It must
// never validate less strictly in a way that a client could come to rely on, and it must
// never depend on the wall clock or on chance: what it does follows from its requests and
// its seed.
package fakeapiserver
