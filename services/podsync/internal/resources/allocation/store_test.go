package allocation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

func entry(cpu string) Entry {
	return Entry{
		Allocation: resize.Allocation{Containers: map[string]resize.Amounts{"c": {Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}},
		Generation: 2, At: time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC),
	}
}

func TestWhatWasKeptIsThereAfterACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "polylet", "allocations.json")
	s := New(path, nil)
	if err := s.Load(); err != nil {
		t.Fatalf("without a file: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "u", entry("1")); err != nil {
		t.Fatal(err)
	}
	next := New(path, nil)
	if err := next.Load(); err != nil {
		t.Fatal(err)
	}
	got, ok := next.Get("u")
	if !ok || !got.Equal(entry("1").Allocation) || got.Generation != 2 || !got.At.Equal(entry("1").At) {
		t.Errorf("read back %+v, %v", got, ok)
	}
	next.Prune(func(types.UID) bool { return false })
	if err := next.Put(t.Context(), "v", entry("2")); err != nil {
		t.Fatal(err)
	}
	last := New(path, nil)
	if err := last.Load(); err != nil {
		t.Fatal(err)
	}
	if _, ok := last.Get("u"); ok {
		t.Error("the entry of a pod that is gone stays in the file")
	}
}

func TestWritesAtOnceAreAllKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocations.json")
	s := New(path, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := s.Put(t.Context(), types.UID(fmt.Sprint(i)), entry("1")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	next := New(path, nil)
	if err := next.Load(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, ok := next.Get(types.UID(fmt.Sprint(i))); !ok {
			t.Errorf("%d is lost", i)
		}
	}
}

func TestADamagedFileIsSetAsideAndSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocations.json")
	if err := os.WriteFile(path, []byte(`{"checksum":"x","data":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(path, nil)
	var damaged *fsatomic.DamagedError
	if err := s.Load(); !errors.As(err, &damaged) || damaged.SetAside == "" {
		t.Fatalf("error %v", err)
	}
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if !s.Lost(before) || s.Lost(after) {
		t.Error("a resize of a pod made before may be lost, one of a pod made later not")
	}
	if err := s.Put(t.Context(), "u", entry("1")); err != nil {
		t.Fatal(err)
	}
	// Also for lives to come: one ended before it had looked at every pod.
	for _, life := range []string{"the next run", "the one after it"} {
		s = New(path, nil)
		if err := s.Load(); err != nil {
			t.Fatalf("%s: %v", life, err)
		}
		if _, ok := s.Get("u"); !ok || !s.Lost(before) || s.Lost(after) {
			t.Errorf("%s: entry %v, lost before %v, after %v", life, ok, s.Lost(before), s.Lost(after))
		}
	}
}

func TestALossIsKnownThoughACrashCameBeforeItWasWrittenDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocations.json")
	if err := os.WriteFile(fsatomic.AsideOf(path), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(path, nil)
	if err := s.Load(); err != nil || !s.Lost(time.Now().Add(-time.Hour)) {
		t.Errorf("error %v, lost %v", err, s.Lost(time.Now().Add(-time.Hour)))
	}
	s = New(path, nil)
	if err := s.Load(); err != nil || !s.Lost(time.Now().Add(-time.Hour)) {
		t.Errorf("afterwards: error %v, lost %v", err, s.Lost(time.Now().Add(-time.Hour)))
	}
}

func TestAFileThatHoldsNoPodsIsALoss(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allocations.json")
	if err := fsatomic.NewCheckpoint[map[types.UID]Entry](path).Write(map[types.UID]Entry{"u": entry("1")}); err != nil {
		t.Fatal(err)
	}
	s := New(path, nil)
	if err := s.Load(); err == nil || !s.Lost(time.Now().Add(-time.Hour)) {
		t.Errorf("error %v, lost %v", err, s.Lost(time.Now().Add(-time.Hour)))
	}
	if err := New(path, nil).Load(); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

func TestThatItCannotBeKeptIsShownUntilItCan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet")
	kubelets := filepath.Join(t.TempDir(), "allocated_pods_state")
	if err := os.WriteFile(kubelets, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	told := health.NewTracker(logr.Discard())
	s := New(filepath.Join(dir, "allocations.json"), told)
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(kubelets); err == nil {
		t.Fatal("a damaged file of a kubelet was taken over")
	}
	if err := s.Put(t.Context(), "u", entry("1")); err == nil {
		t.Fatal("written though there is no directory")
	}
	if _, missing := told.Ready(); !slices.Equal(missing, []string{"allocations", "kubelet's allocations"}) {
		t.Errorf("not ready: %q", missing)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "u", entry("1")); err != nil {
		t.Fatal(err)
	}
	if ok, missing := told.Ready(); !ok {
		t.Errorf("not ready after a good write: %q", missing)
	}
}

func TestTheNilStoreKeepsNothing(t *testing.T) {
	var s *Store
	if err := errors.Join(s.Load(), s.Put(t.Context(), "u", entry("1"))); err != nil {
		t.Error(err)
	}
	s.Forget("u")
	s.Prune(func(types.UID) bool { return false })
	if _, ok := s.Get("u"); ok {
		t.Error("it has an entry")
	}
}
