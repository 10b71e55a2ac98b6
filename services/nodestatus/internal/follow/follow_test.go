package follow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// bench follows ConfigMap ns/c at a fake apiserver.
type bench struct {
	t     *testing.T
	api   *fakeapiserver.Server
	admin client.ConfigMapInterface

	mu     sync.Mutex
	seen   []string                       // its data's text, or what else became of it
	faults map[string]fakeapiserver.Fault // by verb
}

func onBench(t *testing.T, story func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, faults: map[string]fakeapiserver.Fault{}}
		b.api = fakeapiserver.New(fakeapiserver.Config{Seed: 1, Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			b.mu.Lock()
			defer b.mu.Unlock()
			if q.UserAgent == "admin" {
				return fakeapiserver.Fault{}
			}
			return b.faults[q.Verb]
		}})
		defer b.api.Close()
		b.admin = b.api.Admin().CoreV1().ConfigMaps("ns")
		maps := b.api.Client().CoreV1().ConfigMaps("ns")
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() {
			One[*v1.ConfigMap]{
				Name: "c", Label: "ConfigMap ns/c", Open: maps.Watch, Timeout: 10 * time.Second, Longest: time.Minute,
				Read: func(ctx context.Context) (*v1.ConfigMap, string, error) {
					there, err := maps.Get(ctx, "c", metav1.GetOptions{})
					if apierrors.IsNotFound(err) {
						return nil, "", nil
					}
					return there, "", err
				},
				Saw: b.saw, Unread: func(err error) { b.failed("cannot be read", err) }, Ended: func(err error) { b.failed("is not watched", err) },
			}.Follow(ctx, "")
		})
		story(t, b)
		cancel()
		done.Wait()
	})
}

func (b *bench) saw(there *v1.ConfigMap) {
	if there == nil {
		b.note("not there")
		return
	}
	b.note(there.Data["text"])
}

func (b *bench) failed(what string, err error) {
	if err != nil {
		b.note(what)
	}
}

// note notes what is another than before.
func (b *bench) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.seen); n == 0 || b.seen[n-1] != what {
		b.seen = append(b.seen, what)
	}
}

// sees says what is seen within a time, and forgets it.
func (b *bench) sees(within time.Duration, want ...string) {
	b.t.Helper()
	time.Sleep(within)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.seen, want) {
		b.t.Errorf("seen %q, want %q", b.seen, want)
	}
	b.seen = nil
}

func (b *bench) put(name, text string) {
	b.t.Helper()
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text}}
	_, err := b.admin.Update(b.t.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = b.admin.Create(b.t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) fault(verb string, f fakeapiserver.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[verb] = f
}

// calls counts those of a time.
func (b *bench) calls(within time.Duration) map[string]int {
	before := b.api.Calls()
	time.Sleep(within)
	out := b.api.Calls()
	for name, n := range before {
		out[name] -= n
	}
	return out
}

func TestAnObjectIsSeenAsItComesChangesAndGoes(t *testing.T) {
	onBench(t, func(_ *testing.T, b *bench) {
		b.sees(time.Second, "not there")
		b.put("another", "x")
		b.put("c", "one")
		b.sees(time.Second, "one")
		b.put("c", "two")
		b.sees(time.Second, "two")
		if err := b.admin.Delete(b.t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			b.t.Error(err)
		}
		b.sees(time.Second, "not there")
		b.put("c", "three")
		b.sees(time.Second, "three")
		b.sees(24*time.Hour, "three") // each time it is read
	})
}

func TestAfterEachEndOfAWatchTheObjectIsReadAnew(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		time.Sleep(time.Minute)
		b.put("c", "one")
		b.sees(time.Hour, "not there", "one")
		calls := b.calls(24 * time.Hour)
		// An apiserver keeps a watch for 5 to 10 minutes.
		if gets, watches := calls["get configmaps"], calls["watch configmaps"]; gets < 144 || gets > 288 || watches < gets-1 || watches > gets+1 {
			t.Errorf("%d looks, %d watches in a day", gets, watches)
		}
		b.api.Compact()
		b.sees(time.Hour, "one")
		b.put("c", "two")
		b.sees(time.Second, "two")
	})
}

// A proxy may keep a watch open whose apiserver is gone, and answer whoever asks whether the
// connection lives.
func TestAWatchThatIsNeverEndedIsEndedHere(t *testing.T) {
	onBench(t, func(_ *testing.T, b *bench) {
		b.fault("watch", fakeapiserver.Fault{EventDelay: 1000 * time.Hour})
		b.sees(time.Second, "not there")
		b.put("c", "one")
		b.sees(11*time.Minute, "one")
		b.put("c", "two")
		b.sees(11*time.Minute, "two")
		b.put("c", "three")
		b.sees(11*time.Minute, "three")
	})
}

func TestWhatCannotBeReadOrWatchedIsTriedEverMoreRarely(t *testing.T) {
	for verb, word := range map[string]string{"get": "cannot be read", "watch": "is not watched"} {
		t.Run(verb, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				b.put("c", "one")
				b.fault(verb, fakeapiserver.Fault{Status: 403})
				b.api.DropWatches()
				time.Sleep(10 * time.Minute)
				if calls := b.calls(time.Hour); calls["get configmaps"] > 80 || calls["get configmaps"] < 45 || calls["watch configmaps"] > 80 {
					t.Errorf("in an hour: %v", calls)
				}
				b.mu.Lock()
				told := slices.Contains(b.seen, word)
				b.seen = nil
				b.mu.Unlock()
				if verb == "get" && !told {
					t.Errorf("it is not told that it %s", word)
				}
				b.put("c", "two")
				b.fault(verb, fakeapiserver.Fault{})
				time.Sleep(2 * time.Minute)
				b.mu.Lock()
				defer b.mu.Unlock()
				if !slices.Contains(b.seen, "two") {
					t.Errorf("mended, and seen is %q", b.seen)
				}
			})
		})
	}
}

func TestWhatIsNoAnswerOfAnApiserverIsNotSeen(t *testing.T) {
	for _, body := range []string{
		`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"another","uid":"u"}}}`,
		`{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1"}}`,
		`{"type":"MODIFIED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"c","uid":"u"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}}`,
	} {
		onBench(t, func(t *testing.T, b *bench) {
			b.fault("watch", fakeapiserver.Fault{Nonsense: &fakeapiserver.Nonsense{Name: "it", Body: body}})
			b.put("c", "one")
			time.Sleep(time.Hour)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, what := range b.seen {
				if what != "one" && what != "is not watched" && what != "not there" {
					t.Errorf("%s: seen %q", body, what)
				}
			}
			if !slices.Contains(b.seen, "one") || !slices.Contains(b.seen, "is not watched") {
				t.Errorf("%s: seen %q", body, b.seen)
			}
		})
	}
}

// Whoever follows has ended what it is told for.
func TestNothingIsToldAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := One[*v1.ConfigMap]{
		Name: "c", Label: "c", Timeout: time.Second, Longest: time.Second,
		Read: func(context.Context) (*v1.ConfigMap, string, error) {
			cancel()
			return nil, "1", nil
		},
		Saw: func(*v1.ConfigMap) { t.Error("it is seen") },
	}
	o.Unread = func(err error) { t.Errorf("cannot be read: %v", err) }
	o.Open = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, errors.New("refused") }
	o.Ended = func(err error) { t.Errorf("ended: %v", err) }
	o.Follow(ctx, "")
}

// What has come in the last moment, too.
func TestNothingIsSeenAfterTheEnd(t *testing.T) {
	for range 50 { // which of the two is looked at first is chance
		ctx, cancel := context.WithCancel(t.Context())
		events := watch.NewFakeWithChanSize(1, false)
		events.Modify(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}})
		One[*v1.ConfigMap]{
			Name: "c", Label: "c", Timeout: time.Second, Longest: time.Second,
			Open: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				cancel()
				return events, nil
			},
			Saw: func(*v1.ConfigMap) { t.Error("it is seen") },
		}.Follow(ctx, "1")
	}
}

// A server that does so, and whoever asks again at once, would do nothing else.
func TestAWatchThatEndsAtOnceIsTriedEverMoreRarely(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.put("c", "one")
		b.fault("watch", fakeapiserver.Fault{Nonsense: &fakeapiserver.Nonsense{Name: "nothing"}})
		b.api.DropWatches()
		time.Sleep(10 * time.Minute)
		if calls := b.calls(time.Hour); calls["watch configmaps"] > 80 || calls["watch configmaps"] < 45 || calls["get configmaps"] > 80 {
			t.Errorf("in an hour: %v", calls)
		}
	})
}

func TestAReadThatHangsIsTold(t *testing.T) {
	onBench(t, func(_ *testing.T, b *bench) {
		synctest.Wait() // It is watched.
		b.fault("get", fakeapiserver.Fault{Hang: true})
		b.api.DropWatches()
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Contains(b.seen, "cannot be read") {
			b.t.Errorf("seen %q", b.seen)
		}
	})
}

// Its apiserver may have been restored from before what was seen.
func TestWhatIsFollowedFromAVersionOnIsReadOnceTheWatchHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var versions []string
		One[*v1.ConfigMap]{
			Name: "c", Label: "c", Timeout: time.Second, Longest: time.Second,
			Read: func(context.Context) (*v1.ConfigMap, string, error) { return nil, "3", nil },
			Open: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if versions = append(versions, o.ResourceVersion); len(versions) == 3 {
					cancel()
				}
				events := watch.NewFake()
				time.AfterFunc(time.Minute, events.Stop)
				return events, nil
			},
			Saw: func(*v1.ConfigMap) {},
		}.Follow(ctx, "7")
		if want := []string{"7", "3", "3"}; !slices.Equal(versions, want) {
			t.Errorf("watched from %q, want %q", versions, want)
		}
	})
}
