// Package sim is podsync's simulation: podsync whole, on a fake runtime and a
// fake apiserver, in virtual time, with pods that come and go and faults that a
// seed chooses. Invariants are checked at every step of the runtime, at every
// mount and at every write to the apiserver. When the faults are over,
// everything must become as it was asked for, with every status true, and stay
// so without further work; then all pods are deleted, and nothing of them may
// be left; then podsync is stopped, and every goroutine must end.
//
//	go test ./services/podsync/internal/sim -seeds 1000
//	go test ./services/podsync/internal/sim -run TestPodsyncKeepsItsPromisesWhateverFails -seed 42 -v
//
// The second tells the story of one seed: what was done (ACT), what the runtime
// did (RUNTIME), what was written (STATUS), each crash and each broken promise,
// with the virtual time, between podsync's own log lines.
//
// What replays exactly from a seed: the pods, what their processes and probes
// do, when each is created, changed and deleted, all other acts and their
// times, and which call is hit by which fault or crash, where a call is the
// n-th of its method about its subject, whatever else goes on. What does not:
// which of several goroutines that could run at one instant of virtual time
// goes first, and the jitter of back-offs that draw from a source of their own.
// Both decide how often something is called, and so which calls there are to
// hit. A seed that fails now and then fails within some repetitions: -count 20.
//
// A crash is: no further call of that podsync reaches the runtime, the
// apiserver or the mounts, and its context ends. Its goroutines still run to
// their ends, as they would not in a real one; what they do to files meanwhile
// is the one thing that a real crash would not let happen.
//
// It must never know how podsync works inside: it drives New and Run, and looks
// only at what the runtime, the apiserver, the mounts and the disk saw.
package sim
