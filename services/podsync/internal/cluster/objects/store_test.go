package objects

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// bench is a Store that runs against an apiserver, in a bubble.
type bench struct {
	store  *Store
	server *fakeapiserver.Server
	admin  kubernetes.Interface

	mu   sync.Mutex
	seen []string
}

func (b *bench) changes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.seen
	b.seen = nil
	return s
}

func inBubble(t *testing.T, cfg fakeapiserver.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := fakeapiserver.New(cfg)
		defer server.Close()
		b := &bench{server: server, admin: server.Admin()}
		b.store = New(Config{NodeName: "n", TrustBundles: true}, Deps{Client: server.Client()})
		b.store.Subscribe(func(key Key, holders []types.UID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, uid := range holders {
				b.seen = append(b.seen, key.Name+" for "+string(uid))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.store.Run(ctx) }()
		synctest.Wait()
		f(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (b *bench) configMap(t *testing.T, name, value string) {
	t.Helper()
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string]string{"k": value}}
	_, err := b.admin.CoreV1().ConfigMaps("ns").Create(t.Context(), cm, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = b.admin.CoreV1().ConfigMaps("ns").Update(t.Context(), cm, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func podWith(uid string, maps ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "ns", UID: types.UID(uid)}}
	for _, m := range maps {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: m, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: m}},
		}})
	}
	return p
}

func (b *bench) value(t *testing.T, name string) string {
	t.Helper()
	cm, err := b.store.ConfigMap(t.Context(), "ns", name)
	if err != nil {
		return err.Error()
	}
	return cm.Data["k"]
}

func TestAHeldObjectIsKeptCurrentAndItsHoldersAreTold(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		b.configMap(t, "a", "1")
		b.store.Hold(podWith("p1", "a", "b"))
		b.store.Hold(podWith("p2", "a"))
		synctest.Wait()
		if got := b.value(t, "a"); got != "1" {
			t.Errorf("a = %s", got)
		}
		if got := b.value(t, "b"); got != `configmap "b" not found` {
			t.Errorf("b = %s", got)
		}
		if seen := b.changes(); len(seen) != 0 {
			t.Errorf("the first look was told as a change: %v", seen)
		}
		start := time.Now()
		b.configMap(t, "a", "2")
		b.configMap(t, "b", "new")
		synctest.Wait()
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("changes came after %v", d)
		}
		seen := strings.Join(b.changes(), ", ")
		for _, want := range []string{"a for p1", "a for p2", "b for p1"} {
			if !strings.Contains(seen, want) {
				t.Errorf("%q lacks %q", seen, want)
			}
		}
		if b.value(t, "a") != "2" || b.value(t, "b") != "new" {
			t.Errorf("a = %s, b = %s", b.value(t, "a"), b.value(t, "b"))
		}
		if err := b.admin.CoreV1().ConfigMaps("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.value(t, "a"); got != `configmap "a" not found` {
			t.Errorf("after its end: %s", got)
		}
	})
}

func TestAnObjectIsWatchedWhileAPodHoldsIt(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		b.configMap(t, "a", "1")
		b.store.Hold(podWith("p1", "a"))
		b.store.Hold(podWith("p2", "a"))
		synctest.Wait()
		b.store.Release("p1")
		b.configMap(t, "a", "2")
		synctest.Wait()
		if seen := b.changes(); len(seen) != 1 || seen[0] != "a for p2" {
			t.Errorf("told: %v", seen)
		}
		b.store.Hold(podWith("p2")) // its new spec refers to nothing
		synctest.Wait()
		b.configMap(t, "a", "3")
		synctest.Wait()
		if seen := b.changes(); len(seen) != 0 {
			t.Errorf("told though nobody holds it: %v", seen)
		}
		if len(b.store.entries) != 1 { // the Node
			t.Errorf("%d objects are kept", len(b.store.entries))
		}
		if got := b.value(t, "a"); got != "3" {
			t.Errorf("an object that nobody holds reads %s", got)
		}
	})
}

func TestAnObjectThatIsNotAllowedYetComesByItself(t *testing.T) {
	var mu sync.Mutex
	allowed := false
	refuse := func(r fakeapiserver.Request) fakeapiserver.Fault {
		mu.Lock()
		defer mu.Unlock()
		if allowed || r.Resource != "configmaps" {
			return fakeapiserver.Fault{}
		}
		return fakeapiserver.Fault{Status: 403}
	}
	inBubble(t, fakeapiserver.Config{Faults: refuse}, func(t *testing.T, b *bench) {
		b.configMap(t, "a", "1")
		b.store.Hold(podWith("p1", "a"))
		go func() {
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			allowed = true
		}()
		start := time.Now()
		if got := b.value(t, "a"); got != "1" {
			t.Errorf("a = %s", got)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("it came %v after it was allowed", d-300*time.Millisecond)
		}
	})
}

func TestAReadGivesUpWithTheCauseAndTheHolderIsToldLater(t *testing.T) {
	var mu sync.Mutex
	broken := true
	fail := func(r fakeapiserver.Request) fakeapiserver.Fault {
		mu.Lock()
		defer mu.Unlock()
		if broken && r.Resource == "configmaps" {
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}
	inBubble(t, fakeapiserver.Config{Faults: fail}, func(t *testing.T, b *bench) {
		b.configMap(t, "a", "1")
		b.store.Hold(podWith("p1", "a"))
		start := time.Now()
		_, err := b.store.ConfigMap(t.Context(), "ns", "a")
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `configmap "ns/a"`) {
			t.Errorf("err = %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("gave up after %v", d)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if seen := b.changes(); len(seen) != 1 || seen[0] != "a for p1" {
			t.Errorf("told: %v", seen)
		}
	})
}

func TestChangesMissedWhileAwayAreSeenAfterwards(t *testing.T) {
	for name, drop := range map[string]func(*fakeapiserver.Server){
		"a dropped watch":                 (*fakeapiserver.Server).DropWatches,
		"a history that was thrown away":  func(s *fakeapiserver.Server) { s.Compact(); s.DropWatches() },
		"an apiserver without watch-list": (*fakeapiserver.Server).DropWatches,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fakeapiserver.Config{NoWatchList: strings.Contains(name, "without")}
			inBubble(t, cfg, func(t *testing.T, b *bench) {
				b.configMap(t, "a", "1")
				b.store.Hold(podWith("p1", "a"))
				synctest.Wait()
				b.configMap(t, "a", "2")
				drop(b.server)
				b.configMap(t, "a", "3")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if got := b.value(t, "a"); got != "3" {
					t.Errorf("a = %s", got)
				}
			})
		})
	}
}

func TestAnImmutableObjectIsReadOnce(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}, Immutable: ptr.To(true), Data: map[string][]byte{"k": []byte("v")}}
		if _, err := b.admin.CoreV1().Secrets("ns").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := podWith("p")
		pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
		b.store.Hold(pod)
		synctest.Wait()
		calls := func() int {
			n := 0
			for _, r := range b.server.Requests() {
				if r.Resource == "secrets" {
					n++
				}
			}
			return n
		}
		before := calls()
		time.Sleep(time.Hour)
		got, err := b.store.Secret(t.Context(), "ns", "s")
		if err != nil || string(got.Data["k"]) != "v" || calls() != before {
			t.Errorf("%v, %v, %d more calls", got, err, calls()-before)
		}
	})
}

func TestStandaloneReadsFailAtOnceAndSayWhy(t *testing.T) {
	s := New(Config{}, Deps{})
	s.Hold(podWith("p", "a"))
	_, err := s.ConfigMap(t.Context(), "ns", "a")
	if !errors.Is(err, ErrStandalone) || !strings.Contains(err.Error(), `configmap "ns/a"`) {
		t.Errorf("err = %v", err)
	}
	if _, err := s.Services(t.Context(), "ns"); !errors.Is(err, ErrStandalone) {
		t.Errorf("services: %v", err)
	}
	s.Release("p")
}
