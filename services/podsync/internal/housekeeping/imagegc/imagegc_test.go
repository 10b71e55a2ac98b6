package imagegc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

func (r *rig) SourcesReady() time.Time {
	if r.ready.Load() {
		return time.Now()
	}
	return time.Time{}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Collector on the fake runtime, on a disk that has room for ten
// images and nothing but images on it.
type rig struct {
	t     *testing.T
	rt    *fakecri.Runtime
	cri   *cri.Client
	pods  *podcache.Pods
	table *podcache.Table
	reg   *prometheus.Registry
	c     *Collector
	ready atomic.Bool
	slots atomic.Uint64 // the disk's size in images

	mu     sync.Mutex
	fail   bool
	events []string
}

const size = 100 << 20

func image(i int) string { return fmt.Sprintf("docker.io/library/i%d:latest", i) }

func start(t *testing.T, cfg Config, fake fakecri.Config, images int, records ...Records) *rig {
	r := &rig{t: t, pods: podcache.NewPods(1), table: podcache.NewTable(1), reg: prometheus.NewRegistry()}
	r.ready.Store(true)
	r.slots.Store(10)
	fake.Faults = func(_ context.Context, method string, _ any) fakecri.Fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		if method == "RemoveImage" && r.fail {
			return fakecri.Fault{Err: status.Error(codes.Unknown, "no")}
		}
		return fakecri.Fault{}
	}
	fake.Registry = map[string]fakecri.RemoteImage{"docker.io/library/pinned:latest": {Size: size, Pinned: true}}
	for i := range 20 {
		fake.Registry[image(i)] = fakecri.RemoteImage{Size: size}
	}
	r.rt = fakecri.New(fake)
	conn, err := r.rt.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.cri = cri.New(cri.Config{}, conn, conn, nil)
	for i := range images {
		r.pull(image(i))
	}
	records = append(records, nil)
	r.c = New(cfg, Deps{
		Records: records[0],
		Runtime: r.cri, Pods: r.pods, Containers: r.table, Events: r, Sources: r, Disk: r.disk, Metrics: r.reg,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		r.rt.Close()
	})
	synctest.Wait()
	return r
}

func (r *rig) pull(name string) {
	r.t.Helper()
	if _, err := r.cri.PullImage(r.t.Context(), &runtimeapi.ImageSpec{Image: name}, nil, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) disk(string) (Disk, error) {
	images, err := r.cri.ListImages(r.t.Context())
	slots := r.slots.Load()
	return Disk{CapacityBytes: slots * size, AvailableBytes: (slots - min(slots, uint64(len(images)))) * size}, err
}

func (r *rig) Node(_, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, reason+": "+message)
}

func (r *rig) setFail(fail bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = fail
}

func (r *rig) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// there are the numbers, or names, of the images that are present.
func (r *rig) there() string {
	r.t.Helper()
	images, err := r.cri.ListImages(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, i := range images {
		name := strings.TrimSuffix(strings.TrimPrefix(i.GetRepoTags()[0], "docker.io/library/"), ":latest")
		out = append(out, strings.TrimPrefix(name, "i"))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// contains makes a container of an image in the runtime.
func (r *rig) contains(name string) { r.mounts(name) }

// mounts makes one that has images mounted.
func (r *rig) mounts(name string, images ...string) {
	r.t.Helper()
	var mounts []*runtimeapi.Mount
	for i, image := range images {
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: fmt.Sprintf("/%d", i), Readonly: true, Image: &runtimeapi.ImageSpec{Image: image}})
	}
	ctx := r.t.Context()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u", Namespace: "n"}}
	sandbox, err := r.cri.RunSandbox(ctx, config, "")
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.cri.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: name}, Mounts: mounts,
		Labels: map[string]string{cri.LabelPodUID: "u"},
	}, config)
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wants(uid types.UID, phase v1.PodPhase, spec v1.PodSpec) {
	r.pods.Set(podcache.Pod{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: string(uid), UID: uid}, Spec: spec},
		Status: v1.PodStatus{Phase: phase},
	})
}

// ran lets a container of an image come and go in the table.
func (r *rig) ran(image string) {
	r.table.SetPod("u", nil, []podstate.ContainerRow{{ID: "c", Image: image, State: podstate.StateRunning}})
	synctest.Wait()
	r.table.SetPod("u", nil, nil)
	synctest.Wait()
}

var usual = Config{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}

func TestAFullDiskIsFreedDownToTheLowThreshold(t *testing.T) {
	cases := map[string]struct {
		cfg     Config
		images  int
		prepare func(r *rig)
		// want are the images left; or else left is how many, holds among them.
		want, holds string
		left        int
	}{
		"below the high threshold":      {cfg: usual, images: 8, want: "0 1 2 3 4 5 6 7"},
		"down to the low one":           {cfg: Config{HighPercent: 80, LowPercent: 50}, images: 8, left: 5},
		"a threshold of 100 is off":     {cfg: Config{HighPercent: 100, LowPercent: 50}, images: 10, want: "0 1 2 3 4 5 6 7 8 9"},
		"no threshold is off":           {cfg: Config{}, images: 10, want: "0 1 2 3 4 5 6 7 8 9"},
		"not before all pods are known": {cfg: usual, images: 10, prepare: func(r *rig) { r.ready.Store(false) }, want: "0 1 2 3 4 5 6 7 8 9"},
		"images of containers stay":     {cfg: usual, images: 10, prepare: func(r *rig) { r.contains("i0") }, left: 8, holds: "0"},
		"pinned images stay":            {cfg: Config{HighPercent: 50, LowPercent: 1}, images: 6, prepare: func(r *rig) { r.pull("pinned") }, want: "pinned"},
		"images that pods want stay": {cfg: Config{HighPercent: 50, LowPercent: 1}, images: 8, want: "0 1 2 3", prepare: func(r *rig) {
			r.wants("a", v1.PodPending, v1.PodSpec{
				Containers: []v1.Container{{Image: "i0"}}, InitContainers: []v1.Container{{Image: "library/i1:latest"}},
				EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: image(2)}}},
				Volumes:             []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "i3"}}}},
			})
			r.wants("ended", v1.PodSucceeded, v1.PodSpec{Containers: []v1.Container{{Image: "i4"}}})
		}},
		"the one used longest ago goes first": {cfg: usual, images: 10, want: "1 2 4 5 6 7 8 9", prepare: func(r *rig) {
			for _, i := range []int{3, 0, 4, 5, 6, 7, 8, 9, 1, 2} {
				time.Sleep(time.Second)
				r.ran(fmt.Sprintf("i%d", i))
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, c.cfg, fakecri.Config{}, c.images)
				if c.prepare != nil {
					c.prepare(r)
				}
				time.Sleep(5*time.Minute + time.Second)
				got := r.there()
				if c.left > 0 { // which ones of those never used follows from their ids
					if all := strings.Fields(got); len(all) != c.left || c.holds != "" && !slices.Contains(all, c.holds) {
						t.Errorf("left %s, want %d with %q; events %q", got, c.left, c.holds, r.seen())
					}
					return
				}
				if got != c.want {
					t.Errorf("left %s, want %s; events %q", got, c.want, r.seen())
				}
			})
		})
	}
}

func TestAYoungImageIsNotRemovedForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, usual, fakecri.Config{}, 2)
		time.Sleep(9*time.Minute + 59*time.Second)
		for i := 2; i < 10; i++ {
			r.pull(image(i))
		}
		time.Sleep(2 * time.Second)
		if got := r.there(); got != "2 3 4 5 6 7 8 9" {
			t.Errorf("left %s", got)
		}
	})
}

func TestAnImageThatCameBetweenTwoCollectionsIsRemovedAtTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{MaxAge: 90 * time.Second, HighPercent: 100}, fakecri.Config{}, 0)
		time.Sleep(2*time.Minute + 30*time.Second)
		r.pull(image(1))
		time.Sleep(time.Minute)
		r.pull(image(2)) // seen first a minute before the collection
		time.Sleep(90*time.Second + time.Second)
		if got := r.there(); got != "2" {
			t.Errorf("left %s after the first collection, want the one that is younger than 90s", got)
		}
		time.Sleep(5 * time.Minute)
		if got := r.there(); got != "" {
			t.Errorf("left %s after the second", got)
		}
	})
}

// forgetful notes what it is to keep.
// forgetful keeps what it was asked to keep; it is asked in another goroutine.
type forgetful struct {
	mu   sync.Mutex
	kept [][]string
}

func (f *forgetful) Prune(refs []string, _ time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, refs)
	return nil
}

func (f *forgetful) pruned() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept)
}

func TestWhatIsRememberedOfImagesGoesWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &forgetful{}
		r := start(t, Config{MaxAge: time.Minute, HighPercent: 100}, fakecri.Config{}, 2, records)
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if kept := records.pruned(); len(kept) != 1 || len(kept[0]) != 2 {
			t.Fatalf("pruned %v while nothing went", kept)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, kept := r.there(), records.pruned(); got != "" || len(kept) != 2 || len(kept[1]) != 0 {
			t.Errorf("left %s, pruned %v", got, kept)
		}
	})
}

func TestAnImageUnusedForTooLongIsRemovedWhateverTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{MaxAge: time.Hour, HighPercent: 100}, fakecri.Config{}, 3)
		time.Sleep(50 * time.Minute)
		r.ran("i1")
		if got := r.there(); got != "0 1 2" {
			t.Fatalf("left %s before the age", got)
		}
		time.Sleep(15*time.Minute + time.Second)
		if got := r.there(); got != "1" {
			t.Errorf("left %s, want the one that was used", got)
		}
		time.Sleep(time.Hour)
		if got := r.there(); got != "" {
			t.Errorf("left %s two hours later", got)
		}
		if n := testutil.ToFloat64(r.c.removed.WithLabelValues("age")); n != 3 {
			t.Errorf("counted %v", n)
		}
	})
}

func TestReclaimRemovesAllThatIsUnusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{MinAge: time.Hour}, fakecri.Config{}, 4)
		r.wants("a", v1.PodRunning, v1.PodSpec{Containers: []v1.Container{{Image: "i2"}}})
		freed, err := r.c.Reclaim(t.Context())
		if got := r.there(); err != nil || freed.Images != 3 || freed.Bytes != 3*size || len(freed.Failed) != 0 || got != "2" {
			t.Errorf("freed %+v, %v; left %s", freed, err, got)
		}
		r.ready.Store(false)
		if _, err := r.c.Reclaim(t.Context()); err == nil {
			t.Error("reclaimed though not all pods are known")
		}
	})
}

func TestReclaimGoesOnWhenAnImageCannotBeRemovedAndNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{}, fakecri.Config{}, 3)
		r.mu.Lock()
		r.fail = true
		r.mu.Unlock()
		freed, err := r.c.Reclaim(t.Context())
		if err != nil || freed.Images != 0 || freed.Bytes != 0 || len(freed.Failed) != 3 || !strings.Contains(freed.Failed[0], "remove image ") {
			t.Errorf("%+v, %v", freed, err)
		}
		r.mu.Lock()
		r.fail = false
		r.mu.Unlock()
		if freed, err := r.c.Reclaim(t.Context()); err != nil || freed.Images != 3 {
			t.Errorf("then %+v, %v", freed, err)
		}
	})
}

func TestReclaimEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &pass{c: New(Config{}, Deps{Runtime: hung{}, Sources: &rig{}})}
		time.AfterFunc(time.Second, cancel)
		if _, err := p.reclaimWithin(ctx, request{ctx: t.Context(), gone: func() {}}); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// hung is a runtime that does not answer.
type hung struct{ Runtime }

func (hung) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestReclaimWithoutRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := New(Config{}, Deps{}).Reclaim(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWithoutCollectionNoImageIsRememberedLongerThanItsContainers(t *testing.T) {
	c := New(Config{HighPercent: 100}, Deps{})
	for i := range 100 {
		key := podcache.EntryKey{ID: fmt.Sprint(i)}
		c.saw(map[podcache.EntryKey]podcache.Entry{key: {Container: &podstate.ContainerRow{ID: key.ID, Image: image(i / 2)}}}, nil, time.Now())
		if i != 50 {
			c.saw(nil, []podcache.EntryKey{key}, time.Now())
		}
	}
	if len(c.used) != 1 || len(c.of) != 1 || c.used[canonical(image(25))].IsZero() {
		t.Errorf("remembered are %v", c.used)
	}
}

// nameless shows an image without an id beside the others while it is told to.
type nameless struct {
	*cri.Client
	on      atomic.Bool
	removed []string
}

func (n *nameless) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := n.Client.ListImages(ctx)
	if n.on.Load() {
		images = append(images, &runtimeapi.Image{RepoTags: []string{"lost:1"}, Size: size}, &runtimeapi.Image{RepoTags: []string{"lost:2"}, Size: size})
	}
	return images, err
}

func (n *nameless) RemoveImage(ctx context.Context, id string) error {
	n.removed = append(n.removed, id)
	return n.Client.RemoveImage(ctx, id)
}

// seenInPart lists one image of all while it is told to.
type seenInPart struct {
	*cri.Client
	part atomic.Bool
	one  string // its id
}

func (s *seenInPart) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := s.Client.ListImages(ctx)
	if err != nil || !s.part.Load() {
		return images, err
	}
	if s.one == "" {
		s.one = images[0].GetId()
	}
	images = slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return i.GetId() != s.one })
	return images, &inventory.Partial{Err: errors.New("too large")}
}

// What is not in the list is still there: to forget with which credentials it was
// pulled would let everybody use it.
func TestOfImagesThatAListMayBeMissingNothingIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{HighPercent: 100}, fakecri.Config{}, 3)
		images, records := &seenInPart{Client: r.cri}, &forgetful{}
		c := New(Config{MaxAge: 12 * time.Minute, HighPercent: 100}, Deps{Runtime: images, Pods: r.pods, Containers: r.table, Events: r, Sources: r, Disk: r.disk, Records: records})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(6 * time.Minute)
		before := len(records.pruned())
		images.part.Store(true)
		time.Sleep(5 * time.Minute)
		if got := records.pruned(); len(got) != before {
			t.Errorf("told to keep no more than %v", got[before:])
		}
		time.Sleep(10 * time.Minute)
		if left := strings.Fields(r.there()); len(left) != 2 {
			t.Errorf("left are %v, want the two that were not listed", left)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
