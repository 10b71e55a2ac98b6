// Package service has the names of the node's five services: each is a process, a
// socket, a command, a unit and, but for podsync, a user. It owns the names and the
// orders that they are gone through in; it must never say what a service does, or hold
// anything of one.
package service

// The five.
const (
	Podsync    = "podsync"
	Probes     = "probes"
	Stats      = "stats"
	Nodestatus = "nodestatus"
	Gateway    = "gateway"
)

// All are the five, in the order in which they are shown.
func All() []string { return []string{Podsync, Probes, Stats, Nodestatus, Gateway} }

// ServersFirst are the five, who serves before who asks: in this order they are started,
// and a change reaches them; they stop from its end to its beginning.
func ServersFirst() []string { return []string{Podsync, Stats, Nodestatus, Probes, Gateway} }

// Separate are the services with a user of their own; podsync is root.
func Separate() []string { return []string{Gateway, Probes, Stats, Nodestatus} }
