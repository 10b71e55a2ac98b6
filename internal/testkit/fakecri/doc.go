// Package fakecri is a stateful CRI v1 runtime for tests: it owns sandboxes,
// containers, images, the processes "inside" them (which follow scripts) and the
// event streams, and answers as containerd does.
//
// All waiting is on channels and on package time, and gRPC runs over bufconn, so a
// Runtime made inside a testing/synctest bubble lives in virtual time. It must never
// start a real process, touch a namespace or a cgroup, or decide anything from the wall
// clock's or the scheduler's mood: what it does follows from its scripts and its seed.
//
// The package contract beside it runs the same calls against this fake and against a
// real runtime, so that the two cannot drift apart.
package fakecri
