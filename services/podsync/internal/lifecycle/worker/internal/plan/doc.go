// Package plan holds every rule of the pod lifecycle as one pure function:
// from what is wanted, what runs, what probes say and what was tried, Plan
// computes the actions to take now, the status to publish and when to look
// again.
//
// It owns the rules (order, restarts, back-off, grace periods, phase and
// conditions) and must never do I/O, read a clock, take a lock, or keep state
// between calls: the same State gives the same Output.
package plan
