// Package objects keeps live copies of the API objects that the node's pods
// refer to: config maps, secrets, runtime classes and CSI drivers (one watch per object, by
// name, for as long as a pod refers to it), the trust bundles (one watch of all, for as
// long as a pod refers to any), the services (one watch of all) and the node's own Node
// object. Claims, the volumes that are bound to them and the attachments of those, of
// which a node may watch none, it reads when they are needed, and asks for those again
// that a pod waits for.
//
// It owns reading of such objects and telling others at once when they change.
// It must never write to the apiserver and never decide what a change means.
package objects
