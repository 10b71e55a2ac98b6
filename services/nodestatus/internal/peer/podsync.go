package peer

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// callDeadline bounds a question to a peer.
	callDeadline = 5 * time.Second
	// unreadyPeriod is between two questions while the runtime is not ready:
	// the Node is to be Ready as soon as it is.
	unreadyPeriod = 200 * time.Millisecond
	// listPeriod is how long podsync leaves between two lists while events come.
	listPeriod = 66 * time.Second
	// imagesPeriod is between two looks at the images.
	imagesPeriod = time.Minute
)

// Podsync asks podsync.
type Podsync struct {
	client podsyncv1.PodSyncServiceClient
	health health.Reporter
	store  *Store
	// period is between two questions while all is well.
	period time.Duration
	// told is called with what podsync was told of pressure: after each of its answers,
	// and with nothing when it does not give the first.
	told func(pressure.Told)
	// now has it asked without delay.
	now wake.Signal

	// The rest belongs to RunRuntime.
	ran   elapsed
	asked bool
}

// NewPodsync returns a client that asks every period. told is called with what podsync
// says that it was told of pressure: with each of its answers, and, when it does not
// give the first, with nothing.
func NewPodsync(conn grpc.ClientConnInterface, reporter health.Reporter, store *Store, period time.Duration, told func(pressure.Told)) *Podsync {
	return &Podsync{client: podsyncv1.NewPodSyncServiceClient(conn), health: reporter, store: store, period: period, told: told, now: wake.New()}
}

// RunRuntime follows the state of the runtime until ctx is done.
func (p *Podsync) RunRuntime(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.2})
	p.ran = elapsed{last: time.Now(), most: p.period + 2*callDeadline}
	for {
		ready, err := p.askRuntime(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := p.period
		switch {
		case err != nil:
			p.health.Set(service.Podsync, false, fmt.Sprintf("%v; the Node keeps its last state for %s", err, node.PeerGrace))
			wait = retry.Next()
		case !ready:
			wait = unreadyPeriod
		}
		if err == nil {
			retry.Reset()
			p.health.Set(service.Podsync, true, "")
		}
		timer := time.NewTimer(wait)
		select {
		case <-p.now:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// AskNow has podsync asked without delay: it may be another than the one that has answered
// last, who knows nothing of what that one was told.
func (p *Podsync) AskNow() { p.now.Set() }

func (p *Podsync) askRuntime(parent context.Context) (ready bool, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := p.client.GetRuntime(ctx, &podsyncv1.GetRuntimeRequest{})
	now := time.Now()
	passed := p.ran.until(now)
	first := !p.asked
	p.asked = true
	if err == nil || first {
		p.told(toldPressure(r, now))
	}
	p.store.update(func(f *node.Facts) bool {
		old := f.Runtime
		if err != nil {
			f.Runtime.Unanswered += passed
			f.Runtime.Err = err.Error()
			return first // The Node says so after the grace, with its next look.
		}
		f.Runtime = runtimeFacts(old, r, now, passed)
		had := f.Devices
		f.Devices = devices(r)
		return first || !sameRuntime(old, f.Runtime) || !reflect.DeepEqual(had, f.Devices)
	})
	if err != nil {
		return false, fmt.Errorf("ask podsync for the runtime: %w", err)
	}
	return r.GetRuntimeReady() && r.GetNetworkReady(), nil
}

// toldPressure is what podsync was told of pressure; r is nil of one that does not answer.
func toldPressure(r *podsyncv1.GetRuntimeResponse, now time.Time) pressure.Told {
	told := r.GetToldPressure()
	if !told.GetTime().IsValid() {
		return pressure.Told{}
	}
	// The clock may have been set since; what is told is no newer than now.
	out := pressure.Told{Time: now.Add(-max(now.Sub(told.GetTime().AsTime()), 0))}
	for _, kind := range pressure.Kinds() {
		if slices.Contains(told.GetConditions(), string(kind)) {
			out.Kinds = append(out.Kinds, kind)
		}
	}
	return out
}

// devices is what podsync says of a kubelet's device plugins; nil of an older podsync.
func devices(r *podsyncv1.GetRuntimeResponse) *node.Devices {
	left := r.GetKubeletDevices()
	if left == nil {
		return nil
	}
	out := &node.Devices{Checkpoint: left.GetCheckpoint()}
	for _, name := range left.GetResources() {
		out.Resources = append(out.Resources, v1.ResourceName(name))
	}
	return out
}

// runtimeFacts is what is known after an answer that came at now; passed is the time
// since the answer or failure before it.
func runtimeFacts(old node.Runtime, r *podsyncv1.GetRuntimeResponse, now time.Time, passed time.Duration) node.Runtime {
	out := old
	out.Unanswered, out.Err = old.Unanswered+passed, ""
	if !r.GetLastOkTime().IsValid() || r.GetLastOkTime().AsTime().Unix() <= 0 {
		return out // podsync has just started and knows nothing yet.
	}
	out.Silence = max(now.Sub(r.GetLastOkTime().AsTime()), 0)
	if old.Known {
		// What is said to have become longer than the time that has passed comes from
		// a clock that was set, or from processes that were stopped for a while.
		out.Silence = min(out.Silence, old.Silence+out.Unanswered)
	}
	out.Unlisted = old.Unlisted + out.Unanswered // as long as this run of podsync has not listed them
	if last := r.GetLastRelistTime(); last.IsValid() && last.AsTime().Unix() > 0 {
		out.Unlisted = max(now.Sub(last.AsTime()), 0)
		if r.GetContainerEvents() {
			out.Unlisted = max(out.Unlisted-listPeriod, 0) // it was not due before
		}
		if old.Known {
			out.Unlisted = min(out.Unlisted, old.Unlisted+out.Unanswered)
		}
	}
	out.Unanswered, out.Known = 0, true
	out.Name, out.Version = r.GetName(), r.GetVersion()
	out.Ready, out.Message = r.GetRuntimeReady(), r.GetRuntimeMessage()
	out.NetworkReady, out.NetworkMessage = r.GetNetworkReady(), r.GetNetworkMessage()
	out.SupplementalGroupsPolicy = r.GetSupplementalGroupsPolicy()
	out.Handlers = nil
	for _, h := range r.GetHandlers() {
		out.Handlers = append(out.Handlers, node.Handler{Name: h.GetName(), RecursiveReadOnlyMounts: h.GetRecursiveReadOnlyMounts(), UserNamespaces: h.GetUserNamespaces()})
	}
	return out
}

// sameRuntime compares all but the times.
func sameRuntime(a, b node.Runtime) bool {
	a.Unanswered, a.Silence, a.Unlisted = 0, 0, 0
	b.Unanswered, b.Silence, b.Unlisted = 0, 0, 0
	return reflect.DeepEqual(a, b)
}

// elapsed measures time in which this process ran. A process that was stopped, with
// its machine or by itself, finds afterwards that nobody has told it anything for
// long, and that is nobody's fault.
type elapsed struct {
	last time.Time
	// most is what passes at most between two looks of a process that runs.
	most time.Duration
}

// until returns what has passed since it was called last.
func (e *elapsed) until(now time.Time) time.Duration {
	d := now.Sub(e.last)
	e.last = now
	return max(min(d, e.most), 0)
}

// RunImages follows the images until ctx is done.
func (p *Podsync) RunImages(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	for {
		wait := imagesPeriod
		if err := p.askImages(ctx); err != nil {
			wait = retry.Next() // RunRuntime reports that podsync is away.
		} else {
			retry.Reset()
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (p *Podsync) askImages(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := p.client.ListImages(ctx, &podsyncv1.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("ask podsync for the images: %w", err)
	}
	images := make([]node.Image, 0, len(r.GetImages()))
	for _, i := range r.GetImages() {
		images = append(images, node.Image{ID: i.GetId(), Digests: i.GetRepoDigests(), Tags: i.GetRepoTags(), SizeBytes: i.GetSizeBytes()})
	}
	p.store.update(func(f *node.Facts) bool {
		same := f.Images != nil && reflect.DeepEqual(f.Images, images)
		f.Images = images
		return !same
	})
	return nil
}
