// Package sim is the simulation of nodestatus' part in evictions and in shutdowns of the
// machine: nodestatus whole, with a podsync, a stats and an apiserver that are fakes, in
// virtual time, on a machine that pods use up and with faults that a seed chooses. A judge
// who knows how the machine really stands looks at each pod that nodestatus has stopped,
// and each second at what should have happened.
//
//	make sim SEEDS=10000
//	go test ./services/nodestatus/internal/sim -seeds 1000 -first 5001
//	go test ./services/nodestatus/internal/sim -run TestNobodyIsEvicted -seed 42 -v
//
// The last tells the story of one seed: what was done (ACT), what a pod uses (USE), what
// podsync was asked for (ASK), what it did (STOP, END, RECLAIM, TOLD) or not (NO RECLAIM), which pod crashed
// (CRASH, BEGINS ANEW), the machine's shutdown (GOES DOWN, CALLED OFF, OFF), and each
// broken promise, between nodestatus' own log lines.
//
// # What is simulated
//
// A quarter of an hour and the time until all is quiet after it. The three layouts of disks;
// hard thresholds of memory, both disks, inodes and processes, and for some nodes soft ones,
// a minimum to reclaim, and memory that all pods together may use, which is more or less
// than the node has for them. Pods of all priorities,
// static and critical ones, with requests and limits or without. They take memory, processes,
// bytes and inodes, at once or in steps, in volumes, logs, layers or in files that they
// remove and hold open, so that more or less than a threshold is left; give it back; end by
// themselves; crash, so that nothing of them runs until a back-off is over and what they
// have on disks counts only for who asks stats for it (count_ended), after which the
// runtime keeps the layer of the container before; have more than their limits allow. Images fill their disk, and so does what is
// no pod. When a pod is stopped it ends at once, in its time, when that is over, or long
// after it, and its volumes go later still. The machine goes down, once and again, with
// groups of priorities and a time for which it waits; that may be called off. When
// nodestatus is done with it nothing more happens.
//
// # Faults
//
//   - stats is dead, tells nothing, hangs, is slow and fails; a filesystem does not answer, so
//     that its figures are absent; figures are wrong for one look, of the signals or of
//     what is asked for; directories take long to be measured.
//   - podsync hangs, is slow and fails, is killed: at any time, before it keeps a stop,
//     before it answers, or while it reclaims. It does not know all its pods after its start,
//     and reclaims nothing then. Its disk is full,
//     so that it ends a pod and does not keep that.
//   - nodestatus is killed, at any time or when podsync has taken its decision, and begins anew.
//   - the apiserver is away: refused or silent.
//
// # Promises
//
// At each stop (judgestop_test.go), when nodestatus begins to ask for it, whenever podsync
// hears of it: what the message says is short was so of late, and since
// the last pod that went has given back what it had; figures in the message are those that
// were; nobody else was surely before the pod, by a ranking of the judge's own; it is not
// static or critical; no other one is ending, or may be, that was to be waited for; it was given the
// time that its threshold gives, and a soft one was met for its grace period; images that
// would have been enough were tried; a limit of its own was broken; nobody is stopped twice.
// What nodestatus then tells of its decision is so.
//
// In a shutdown (judgedown_test.go): pods are stopped by priority, none while one of an
// earlier group runs or has volumes and has time, each with the time of its group, none
// that was not stopped when the machine goes down; the machine waits for their ends, for
// the apiserver to hear of them, and for nothing else; podsync admits no pod meanwhile, and
// does again when it is called off, after which none is stopped.
//
// Each second (judgewait_test.go), but while a fault explains it: what is short for long has
// somebody go; what podsync is told of pressure is so, some seconds after it is and until
// the transition period is over; the Node says the same; who has more than its limits allow
// goes; what podsync could not keep is asked for again. That the apiserver is away explains
// none of that but what the Node says.
//
// Each has a broken case in sabotages_test.go that shows that it is found, and each case
// there passes where nothing is broken.
//
// # Replay
//
// From a seed follow the node, its pods, what they do and when, all faults, and how long each
// call takes, where it is the n-th of its method. nodestatus draws the times between its
// attempts itself, and which of several goroutines goes first at one instant follows from
// nothing: a seed that fails may pass. -count 20 finds it again.
//
// A kill is: no further call of that run reaches anybody, and its context ends.
//
// It must never know how nodestatus decides: it drives New and Run, and looks only at what
// podsync and the apiserver see, and at what nodestatus tells who asks.
package sim
