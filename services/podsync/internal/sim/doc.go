// Package sim is podsync's simulation: podsync whole, on a fake runtime and a
// fake apiserver, in virtual time, with pods that come and go and faults that a
// seed chooses. Invariants are checked at every step of the runtime, at every
// mount and at every write to the apiserver. When the faults are over,
// everything must become as it was asked for, with every status true, and stay
// so without further work; then all pods are deleted, and nothing of them may
// be left; then podsync is stopped, and every goroutine must end.
//
//	make sim SEEDS=10000
//	go test ./services/podsync/internal/sim -seeds 1000 -first 5001
//	go test ./services/podsync/internal/sim -run TestPodsyncKeepsItsPromisesWhateverFails -seed 42 -v
//	make replay SEED=42
//
// The third tells the story of one seed: what was done (ACT), what the runtime
// did (RUNTIME), what was written (STATUS), each crash and each broken promise,
// with the virtual time, between podsync's own log lines. The last prints its trace,
// each call and its end, from a run that is meant to be the same each time.
//
// # What is simulated
//
// Pods of the apiserver and static ones whose manifests come, change and go:
// jobs, servers, crashing and stubborn ones, init containers, sidecars,
// restart policies and rules of single containers, ephemeral containers, hooks,
// probes whose results come as a script says, volumes, active deadlines, wrong
// images. They are created, changed and deleted, with grace periods of all
// lengths and none, and a period that is shortened while it runs; they are resized
// in place, to what fits, to what does not fit yet or ever, and to what the node's
// policy rules out, with and without the wish to be restarted for it. Some seeds
// have a pod whose containers are all restarted when one ends as its rule says, and
// a few drain a node full of pods at once. Some have claims, which are made, and
// bound to volumes that are made, at any time. Some have two CSI drivers and pods with
// volumes of these, their own and shared ones, which are staged and attached or not; what
// attaches them, and what writes into the Node which are in use, takes its time. Some of
// their volumes become larger, and some are devices. In some, other images come under the
// name that pods run, of which some ask for the newest. In some the node evicts pods, with
// grace periods of all lengths, once or again with less, while podsync dies before or
// after its answer, and has room made. In some it is short of memory, and a controller
// makes a pod anew each time that it is evicted.
//
// # Faults
//
//   - podsync: SIGKILL before or after any call, up to four times, and at any time.
//   - The runtime: a call fails, hangs, is slow, or works though its answer is
//     lost (also StopContainer and preStop, which may hang to their bounds;
//     postStart and PullImage have none, so they are slow instead); events are lost,
//     repeated, late or not there at all, and their stream hangs; it goes and comes back; its network
//     does; it removes no container for a while; a process or a sandbox dies; the machine reboots, and the runtime may have
//     forgotten everything then.
//   - The apiserver: 500, 429, 410, no answer, a lost answer; watches that are
//     cut, compacted away or late; refused and silent partitions; a 404 to each status.
//   - CSI drivers (csidriver_test.go): a call fails for good or not, hangs, is slow, has its effect
//     after nobody waits for it any more, or is said to be done and is not; the process
//     dies at any call, before or after its effect, and comes back at its socket or at
//     another; all of a driver hangs for a while; podsync dies at any call to one.
//   - probes: the process dies, results come late.
//   - The disk: what was kept of the probes is damaged, or what is kept of volumes.
//
// # Invariants
//
// At each step (judge*_test.go, status_test.go, mount_test.go): one live container
// per name and one standing sandbox per pod at most; no start before the init
// containers and sidecars before it have come so far, after the pod's end has
// begun, against a restart policy, before a back-off is over, or, where the policy is to
// ask each time, of an image from before it was due; no end without a
// reason, without being asked first, or before its grace period is over; no stop
// that gets longer; phases, restart counts, start times, observed generations and the address of a pod that
// has ended only move one way; an ended phase stands only when nothing runs; an
// object is deleted last, and its status says how it ended; a pod whose eviction was
// answered ends with that reason and message unless it had ended before, nothing of it
// is made any more, and nobody else is evicted (evict_test.go); of a controller whose pods
// are evicted again and again none starts before its back-off is over (edge_test.go); every mount has an owner, and
// that of a claim's volume a claim that is bound; no container starts before what its pod
// keeps in memory, and the volumes of its claims, are mounted. Of CSI drivers' volumes
// (judgecsi_test.go): nothing is asked for twice, or during another call for the same
// volume; nothing is staged or published before the Node says that it is in use and
// attached, nor does the Node stop saying so before it is unstaged; none is taken from a
// pod before its containers have ended and its sandbox is stopped, or unstaged while a pod
// has it; where nothing else fails, a driver that is as it should be is asked at once
// whatever another does, also for the volumes of a pod that ends; nothing grows where it is not or beyond what was asked for, and no
// claim says a size that its volume has not; no container starts without its devices. When
// it is quiet
// (quiet_test.go): the outcome that was asked for, statuses and readiness as the
// runtime has them, files as their ConfigMaps are, sizes as they were asked for and
// fit, also those of volumes, beside each of which lies what says whose it is, no sandbox, container, mount,
// directory, log or link without an owner, and no work where nothing happens.
// Each has a broken case in sabotage_test.go that shows that it is found, but for
// two that the fakes do not let break: a container that is removed while it runs,
// and one that goes from ended to running under one id.
//
// # Replay
//
// With -exact a seed is to give the same trace each time, step by step, on an idle
// machine and on a loaded one: it runs in a process of its own, a copy of one that
// has begun and is in the same state for each (nursery_test.go), on one processor and
// with a Go runtime that draws its random numbers from the seed and interrupts nobody
// (exact_test.go). TestASeedGivesTheSameTraceBesideALoad (replay_test.go) holds it to that.
//
// Without, what follows from a seed are the pods, what their processes and probes
// do, when each is created, changed and deleted, all other acts and their
// times, and which call is hit by which fault or crash, where a call is the
// n-th of its method about its subject, whatever else goes on. Which of several
// goroutines that could run at one instant of virtual time goes first does not;
// it decides how often something is called, and so which calls there are to hit.
// A seed that fails so and passes exactly fails again within some repetitions:
// -count 20.
//
// A crash is: no further call of that podsync reaches the runtime, the
// apiserver or the mounts, and its context ends. Its goroutines still run to
// their ends, as they would not in a real one; what they do to files meanwhile
// is the one thing that a real crash would not let happen.
//
// It must never know how podsync works inside: it drives New and Run, and looks
// only at what the runtime, the apiserver, the mounts and the disk saw.
package sim
