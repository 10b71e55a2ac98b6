package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestNothingIsFoundWhereNodestatusKeepsItsPromises(t *testing.T) {
	for name, of := range map[string]func(int64) *scenario{
		"nothing happens":                                 quiet(),
		"a hog alone":                                     onlyHog(),
		"less is left while podsync fails":                laterShorter(),
		"what pods may use":                               podsShort(),
		"podsync that is restarted fast":                  fastRestart(),
		"memory":                                          quiet(takes("hog", mostMemory)),
		"a disk":                                          quiet(takes("hog", mostOfDisk)),
		"removed files":                                   quiet(takes("hog", mostRemoved)),
		"inodes":                                          quiet(takes("hog", mostInodes)),
		"processes":                                       quiet(takes("hog", mostPIDs)),
		"a soft threshold":                                quiet(soft, takes("hog", func(u *use) { u.memory += 7200 * mi })),
		"a limit":                                         limitBroken(),
		"a stats that is dead":                            deadStats(),
		"a filesystem that does not answer":               hungFilesystem(),
		"figures that jump":                               jump(),
		"a full disk":                                     fullDisk(),
		"an apiserver that is away":                       awayApiserver(),
		"thousands of small files":                        smallFiles(),
		"a pod that refuses to die":                       stubborn(20 * time.Second),
		"a pod that never dies":                           stubborn(time.Hour),
		"nodestatus that dies when it decides":            nodestatusDies(),
		"podsync that dies before it keeps it":            podsyncDies(1),
		"podsync that dies when it keeps it":              podsyncDies(2),
		"podsync that hangs":                              quiet(wrong(50*time.Second, 40*time.Second, "podsync", func(w *world, is bool) { w.podsync.hangs = is }), takes("hog", mostMemory)),
		"images that nobody uses":                         garbage(),
		"podsync that dies while it reclaims":             diesReclaiming(0),
		"podsync that is away when it is to reclaim":      garbageAnd(at(59*time.Second, "podsync is killed", func(w *world) { w.killPodsyncLocked(6 * time.Second) })),
		"a pod that fills its layer and crashes":          crash(func(u *use) { u.layer += 72000 * mi }),
		"a pod that fills its volume and crashes":         crash(mostOfDisk),
		"a pod that crashed and has begun anew":           quiet(takesAt(30*time.Second, "hog", func(u *use) { u.layer += 40000 * mi }), crashes(40*time.Second, 5*time.Second), takes("other", func(u *use) { u.volume += 32000 * mi })),
		"a pod that does not die, short of both memories": bothMemories(),
	} {
		t.Run(name, func(t *testing.T) { finds(t, sabotage{scenario: of}, "") })
	}
}

func limitBroken() func(int64) *scenario {
	return quiet(hog(func(p *pod) { p.limitVolume(1000 * mi) }), takes("hog", func(u *use) { u.volume += 2000 * mi }))
}

// deadStats is one that dies when something is short, of which enough is left soon after
// that; podsync hangs until then.
func deadStats() func(int64) *scenario {
	return quiet(
		wrong(50*time.Second, 50*time.Second, "podsync", func(w *world, is bool) { w.podsync.hangs = is }), takes("hog", mostMemory),
		wrong(65*time.Second, 2*time.Minute, "stats", func(w *world, is bool) { w.stats.down = is; w.stats.life++ }),
		takesAt(70*time.Second, "hog", func(u *use) { u.memory = 300 * mi }),
	)
}

func hungFilesystem() func(int64) *scenario {
	return quiet(wrong(time.Minute, time.Minute, "hung", func(w *world, is bool) { w.hung[nodeBytes], w.hung[nodeInodes] = is, is }))
}

func jump() func(int64) *scenario {
	return quiet(at(time.Minute, "figures jump", func(w *world) { w.jumpFrame = map[good]uint64{memory: 0} }))
}

func fullDisk() func(int64) *scenario {
	return quiet(hog(func(p *pod) { p.late = 3 * time.Minute }), takes("hog", mostMemory), at(50*time.Second, "podsync's disk is full", func(w *world) {
		w.full = true
		w.fault("full", 16*time.Second)
		time.AfterFunc(15*time.Second, func() { w.set(func() { w.full = false }) })
	}))
}

func awayApiserver() func(int64) *scenario {
	return quiet(wrong(50*time.Second, 3*time.Minute, "apiserver", func(w *world, is bool) {
		if w.partitioned = is; is {
			w.api.Partition(fakeapiserver.Refuse)
		} else {
			w.api.Heal()
		}
	}), takes("hog", mostMemory))
}

func smallFiles() func(int64) *scenario {
	return quiet(hog(func(p *pod) { p.slow = 6 * time.Second }), takes("hog", mostOfDisk))
}

// stubborn is a hog that does not die for so long.
func stubborn(late time.Duration) func(int64) *scenario {
	return quiet(hog(func(p *pod) { p.late = late }), takes("hog", mostMemory), takesAt(70*time.Second, "other", func(u *use) { u.memory += 100 * mi }))
}

// nodestatusDies is one that dies after podsync has taken its decision.
func nodestatusDies() func(int64) *scenario {
	return quiet(
		hog(func(p *pod) { p.late = 20 * time.Second }), takes("hog", mostMemory),
		at(30*time.Second, "nodestatus is to die", func(w *world) { w.runDiesAtStop, w.dieFor = true, 2*time.Second }),
		takesAt(62*time.Second, "other", func(u *use) { u.memory += 30 * mi }),
	)
}

func podsyncDies(when int) func(int64) *scenario {
	return quiet(takes("hog", mostMemory), at(30*time.Second, "podsync is to die", func(w *world) { w.dieAtStop, w.dieFor = when, 4*time.Second }))
}

func garbage() func(int64) *scenario { return garbageAnd(func(*scenario) {}) }

// diesReclaiming has podsync die while it frees images that would be enough.
func diesReclaiming(away time.Duration) func(int64) *scenario {
	return garbageAnd(at(30*time.Second, "podsync is to die", func(w *world) { w.dieAtReclaim, w.dieFor = true, away }))
}

// unnoticed has nodestatus not notice that podsync did not do what it was to reclaim.
func unnoticed() hook {
	return func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		switch r := out.(type) {
		case *podsyncv1.ListDesiredPodsResponse:
			if err == nil {
				r.Epoch = 1
			}
		default:
			if c.method == "Reclaim" && err != nil {
				return &podsyncv1.ReclaimResponse{}, nil
			}
		}
		return out, err
	}
}

// garbageAnd has images that nobody uses, and a disk that is short without them.
func garbageAnd(more func(s *scenario)) func(int64) *scenario {
	return quiet(more, at(30*time.Second, "images", func(w *world) { w.machine.images = 60000 * mi }), takes("hog", func(u *use) { u.volume += 11000 * mi }))
}

// crash has the hog take something and crash; it is not back for long.
func crash(takes func(u *use)) func(int64) *scenario {
	return quiet(takesAt(time.Minute, "hog", takes), crashes(time.Minute+20*time.Millisecond, 4*time.Minute))
}

// crashes has the hog crash, and begin anew after its back-off.
func crashes(when, backOff time.Duration) func(s *scenario) {
	return at(when, "the hog crashes", func(w *world) { w.crashLocked(w.pods["hog"], backOff) })
}

// endedUncounted asks stats for nothing that has ended.
func endedUncounted(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
	if r, ok := c.req.(*statsv1.GetSummaryRequest); ok {
		r.CountEnded = false
	}
	return do(ctx, c.req)
}

// bothMemories is short of what the node has and more so of what pods may use, and the hog
// does not die.
func bothMemories() func(int64) *scenario {
	return quiet(hog(func(p *pod) { p.late = 20 * time.Second }), takes("hog", mostMemory), func(s *scenario) { s.machine.capacity[podsMemory] = 8800 * mi })
}

// podsShort is short of what pods may use alone.
func podsShort() func(int64) *scenario {
	return quiet(takes("hog", func(u *use) { u.memory += 5000 * mi }), func(s *scenario) { s.machine.capacity[podsMemory] = 6000 * mi })
}

// comparing has another pod go some seconds after the first for memory, for less is left of
// what pods may use than was of the node.
func comparing() hook {
	done := false
	return onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		out, err := do(ctx, r)
		if done {
			return out, err
		}
		done = true
		w.lives.Go(func() {
			pause(context.Background(), 4*time.Second)
			w.mu.Lock()
			k := w.judge.marks[slices.IndexFunc(w.judge.marks, func(k *mark) bool { return k.r == podsMemory })]
			message := fmt.Sprintf("The node was low on resource: memory. Threshold quantity: %d, available: %d. ", k.need, w.machine.left(podsMemory))
			w.mu.Unlock()
			other := proto.CloneOf(r)
			other.Pod.Name, other.Pod.Uid, other.Message = "other", "uid-other", message
			_, _ = do(context.Background(), other)
		})
		return out, err
	})
}

// fastRestart restarts podsync within less than a second while memory is short, which stays
// so.
func fastRestart() func(int64) *scenario {
	return quiet(takes("static", func(u *use) { u.memory += 8400 * mi }), at(106*time.Second, "podsync is restarted", func(w *world) { w.killPodsyncLocked(300 * time.Millisecond) }))
}

// rememberingPodsync says that it was told of pressure though it was restarted since.
func rememberingPodsync() hook {
	var told *podsyncv1.ToldPressure
	return func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
		out, err := do(ctx, c.req)
		if r, ok := out.(*podsyncv1.GetRuntimeResponse); ok && err == nil {
			if r.ToldPressure == nil {
				r.ToldPressure = told
			}
			told = r.ToldPressure
		}
		return out, err
	}
}

func TestEveryBrokenPromiseOfNodestatusIsFound(t *testing.T) {
	memoryHog := quiet(takes("hog", mostMemory))
	oldCall, oldStream := byOldFigures()
	unseenCall, unseenStream := unseen()
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"a stop by what a dead stats has said", sabotage{scenario: deadStats(), call: oldCall, stream: oldStream}, "though nothing of it was short"},
		{"a filesystem that does not answer is taken for a full one", sabotage{scenario: hungFilesystem(), call: unseenCall, stream: unseenStream}, "though nothing of it was short"},
		{"figures that jump are not looked at twice", sabotage{scenario: jump(), call: summaries(func(w *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
			if w.judge.marks[0].quiet.IsZero() {
				s.Node.Memory.AvailableBytes = number(uint64(0))
			}
		})}, "though nothing of it was short"},
		{"what a full disk does not keep is not asked for again", sabotage{scenario: fullDisk(), call: onStop(func(ctx context.Context, _ *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
			_, _ = do(ctx, r)
			return &podsyncv1.StopPodResponse{}, nil
		})}, "is kept by nobody, and podsync is not asked again"},
		{"nobody goes while the apiserver is away", sabotage{scenario: awayApiserver(), call: onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
			w.mu.Lock()
			away := w.partitioned
			w.mu.Unlock()
			if away {
				return nil, fmt.Errorf("%w: the apiserver is away", rpcerr.ErrUnavailable)
			}
			return do(ctx, r)
		})}, "and nobody goes"},
		{"who has thousands of small files hides them", sabotage{scenario: smallFiles(), call: summaries(func(_ *world, s *statsapi.Summary, r *statsv1.GetSummaryResponse) {
			for i := range s.Pods {
				if slices.Contains(r.GetUnmeasuredPodUids(), s.Pods[i].PodRef.UID) {
					s.Pods[i].VolumeStats = nil
				}
			}
			r.UnmeasuredPodUids = nil
		})}, "was stopped before pod hog"},
		{"a second pod goes while one refuses to die", sabotage{scenario: stubborn(20 * time.Second), call: and(func(r *podsyncv1.StopPodRequest) {
			r.Pod.Name, r.Pod.Uid = "other", "uid-other"
		})}, "though pod hog was stopped for memory.available"},
		{"a second pod goes while podsync has not answered about the first", sabotage{scenario: memoryHog, call: besideUnanswered("other")}, "though pod hog was stopped for memory.available"},
		{"a stop that is held back has figures of before", sabotage{scenario: laterShorter(), call: heldBack(30 * time.Second)}, "by figures that were not so"},
		{"a stop that podsync did not hear of is not asked for again", sabotage{scenario: onlyHog(), call: failsOnce()}, "and nobody goes"},
		{"who refuses to die is waited for without end", sabotage{scenario: stubborn(time.Hour), call: afterFirst()}, "and nobody goes"},
		{"nodestatus forgets that a pod is ending", sabotage{scenario: nodestatusDies(), call: func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
			out, err := do(ctx, c.req)
			if r, ok := out.(*podsyncv1.ListDesiredPodsResponse); ok && err == nil {
				r.Endings = nil
			}
			return out, err
		}}, "was stopped a second time"},
		{"what podsync has forgotten is not asked for again", sabotage{scenario: podsyncDies(1), call: afterFirst()}, "and nobody goes"},
		{"what a crashed pod has left does not count", sabotage{scenario: crash(func(u *use) { u.layer += 72000 * mi }), call: endedUncounted}, "was stopped before pod hog"},
		{"what a crashed pod has in its volumes does not count", sabotage{scenario: crash(mostOfDisk), call: endedUncounted}, "was stopped before pod hog"},
		{"two signals of memory are compared", sabotage{scenario: bothMemories(), call: comparing()}, "though pod hog was stopped for memory.available"},
		{"what pods may use is not looked at", sabotage{scenario: podsShort(), call: summaries(func(_ *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
			s.Node.SystemContainers = nil
		})}, "allocatableMemory.available is short since"},
		{"a fast restart of podsync is not noticed", sabotage{scenario: fastRestart(), call: rememberingPodsync()}, "podsync does not know of MemoryPressure"},
		{"the wrong pod", sabotage{scenario: memoryHog, call: instead("other")}, "was stopped before pod hog"},
		{"a pod that must stay", sabotage{scenario: memoryHog, call: instead("static")}, "which is static or critical"},
		{"a pod that there is not", sabotage{scenario: memoryHog, call: instead("nobody")}, "to end a pod that there is not"},
		{"a pod twice", sabotage{scenario: memoryHog, call: and(func(*podsyncv1.StopPodRequest) {})}, "was stopped twice"},
		{"a pod for two reasons", sabotage{scenario: memoryHog, call: and(func(r *podsyncv1.StopPodRequest) { r.Message += "So it is. " })}, "was stopped a second time"},
		{"a decision that is forgotten", sabotage{scenario: memoryHog, call: swallowed(func(*world, *podsyncv1.StopPodRequest) bool { return true })}, "and nobody goes"},
		{"another reason", sabotage{scenario: memoryHog, call: stops(func(r *podsyncv1.StopPodRequest) { r.Reason = "Preempted" })}, `for the reason "Preempted"`},
		{"more time than a hard threshold gives", sabotage{scenario: memoryHog, call: stops(func(r *podsyncv1.StopPodRequest) { r.Grace = durationpb.New(20 * time.Second) })}, "was given 20s, not 1s"},
		{"a soft threshold before its time", sabotage{scenario: quiet(soft, takes("hog", func(u *use) { u.memory += 7200 * mi })), call: tooEarly()}, "whose grace period of 1m0s was not over"},
		{"another message", sabotage{scenario: memoryHog, call: stops(func(r *podsyncv1.StopPodRequest) { r.Message = "so" })}, "for a limit that it has kept"},
		{"figures that were not so", sabotage{scenario: memoryHog, call: summaries(func(_ *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
			*s.Node.Memory.AvailableBytes /= 2
		})}, "by figures that were not so"},
		{"a pod that goes though what podsync frees is enough", sabotage{scenario: garbage(), call: func(ctx context.Context, _ *world, c call, do calls) (proto.Message, error) {
			if c.method == "Reclaim" {
				return &podsyncv1.ReclaimResponse{}, nil
			}
			return do(ctx, c.req)
		}}, "though images that nobody uses would be enough"},
		{"a reclaim that podsync never did is taken for one that found nothing", sabotage{scenario: diesReclaiming(0), call: unnoticed()}, "though images that nobody uses would be enough"},
		{"pressure that is not told", sabotage{scenario: quiet(takes("static", func(u *use) { u.memory += 8400 * mi })), call: pressures(func([]string) []string { return nil })}, "podsync does not know of MemoryPressure"},
		{"pressure that there is not", sabotage{scenario: memoryHog, call: pressures(func([]string) []string { return []string{"PIDPressure"} })}, "podsync is told of PIDPressure, and it is over"},
		{"pressure that is not taken back", sabotage{scenario: memoryHog, call: pressures(func(c []string) []string {
			return append(slices.Clone(c), "MemoryPressure")
		})}, "podsync is told of MemoryPressure, and it is over"},
		{"a Node that says something else", sabotage{scenario: memoryHog, call: pressures(func(c []string) []string { return append(slices.Clone(c), "DiskPressure") })}, "the Node says something else than what podsync knows"},
		{"a limit that nobody looks at", sabotage{scenario: limitBroken(), call: summaries(func(_ *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
			for i := range s.Pods {
				s.Pods[i].VolumeStats = nil
			}
		})}, "has more than it may"},
		{"a limit that was kept", sabotage{scenario: quiet(hog(func(p *pod) { p.limitVolume(1000 * mi) })), call: summaries(func(_ *world, s *statsapi.Summary, _ *statsv1.GetSummaryResponse) {
			for i := range s.Pods {
				for k := range s.Pods[i].VolumeStats {
					*s.Pods[i].VolumeStats[k].UsedBytes *= 10
				}
			}
		})}, "for a limit that it has kept"},
		{"a decision that is not told", sabotage{scenario: memoryHog, decisions: func(r *nodestatusv1.ListEvictionDecisionsResponse) { r.Decisions = nil }}, "nodestatus does not tell that it had pod hog ended"},
		{"a decision that is told with other figures", sabotage{scenario: memoryHog, decisions: func(r *nodestatusv1.ListEvictionDecisionsResponse) {
			for _, d := range r.GetDecisions() {
				for _, c := range d.GetCandidates() {
					c.Usage *= 2
				}
			}
		}}, "nodestatus tells that pod hog used"},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}
