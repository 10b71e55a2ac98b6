package status

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestAStatusThatARestoreTookBackIsWrittenAgainOnceAndAtOnce(t *testing.T) {
	for _, bump := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fakeapiserver.Config{}, nil)
			pod := b.create("a")
			b.w.Set(pod, pending())
			time.Sleep(time.Second)
			backup := b.api.Backup()
			want := running("10.0.0.1")
			b.w.Set(b.api.Pod("default", "a"), want)
			synctest.Wait()
			b.w.Set(b.api.Pod("default", "a"), want) // the watch brings what was written
			time.Sleep(time.Minute)
			b.api.Restore(backup, bump)
			before, began := b.patches(), time.Now()
			b.w.Set(b.api.Pod("default", "a"), want)
			synctest.Wait()
			if got := b.api.Pod("default", "a").Status; got.Phase != v1.PodRunning || time.Since(began) != 0 {
				t.Errorf("bump %v: the apiserver shows %s", bump, got.Phase)
			}
			b.w.Set(b.api.Pod("default", "a"), want)
			time.Sleep(time.Hour)
			if n := b.patches() - before; n != 1 {
				t.Errorf("bump %v: %d requests after the restore, want one", bump, n)
			}
		})
	}
}

func TestAPodThatChangesAfterARestoreIsNotWrittenForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		backup := b.api.Backup()
		for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			b.w.Set(pod, running(ip))
			synctest.Wait()
		}
		b.api.Restore(backup, false)
		before := b.patches()
		b.w.Set(pod, running("10.0.0.4")) // the watch has brought nothing yet
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 1 || b.api.Pod("default", "a").Status.PodIP != "10.0.0.4" {
			t.Errorf("%d requests after the restore, want one; the apiserver shows %s", n, b.api.Pod("default", "a").Status.PodIP)
		}
	})
}

// The watch of the second was behind when the restore came: what it brings is not older
// than what it brought before.
func TestWhatOnePodShowsOfARestoreHoldsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		first, second := b.create("first"), b.create("second")
		backup := b.api.Backup()
		want := running("10.0.0.1")
		b.w.Set(first, want)
		b.w.Set(second, want)
		synctest.Wait()
		b.w.Set(b.api.Pod("default", "first"), want)
		b.api.Restore(backup, true)
		before := b.patches()
		b.w.Set(b.api.Pod("default", "second"), want)
		b.w.Set(b.api.Pod("default", "first"), want)
		synctest.Wait()
		for _, name := range []string{"first", "second"} {
			if got := b.api.Pod("default", name).Status.Phase; got != v1.PodRunning {
				t.Errorf("%s shows %s", name, got)
			}
		}
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 2 {
			t.Errorf("%d requests after the restore, want two", n)
		}
	})
}

func TestAMirrorThatARestoreTookBackIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirrors := mirrorMap{}
		b := start(t, fakeapiserver.Config{}, mirrors)
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "static", Annotations: map[string]string{podutil.AnnotationSource: source.File}}}
		brought := func() {
			mirrors["static"] = b.api.Pod("default", "m")
			b.w.Touch("static")
			synctest.Wait()
		}
		b.create("m")
		backup := b.api.Backup()
		b.w.Set(static, running("10.0.0.1"))
		brought()
		brought()
		time.Sleep(time.Minute)
		b.api.Restore(backup, false)
		before := b.patches()
		brought()
		if got := b.api.Pod("default", "m").Status.Phase; got != v1.PodRunning {
			t.Errorf("the mirror shows %s", got)
		}
		brought()
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 1 {
			t.Errorf("%d requests after the restore, want one", n)
		}
	})
}

// The watch is behind what was written meanwhile: that is no restore.
func TestAnOlderObjectOfAWatchThatIsBehindIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.w.Set(pod, pending())
		time.Sleep(time.Second)
		behind := b.api.Pod("default", "a")
		want := running("10.0.0.1")
		b.w.Set(pod, want)
		synctest.Wait()
		b.w.Set(behind, want)
		time.Sleep(time.Hour)
		if n := b.patches(); n != 2 {
			t.Errorf("%d requests, want two", n)
		}
	})
}

// The watch had not brought what was written, and the versions have come to where they
// were: no object is older than one that was seen.
func TestWhatAListDoesNotShowThoughItIsNewerIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.w.Set(pod, pending())
		time.Sleep(time.Second)
		seen := b.api.Pod("default", "a")
		b.w.Set(seen, pending())
		backup := b.api.Backup()
		want := running("10.0.0.1")
		b.w.Set(seen, want)
		time.Sleep(time.Second)
		b.api.Restore(backup, false)
		for _, name := range []string{"b", "c", "d"} {
			b.create(name)
		}
		list, err := b.api.Admin().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := b.patches()
		is := b.api.Pod("default", "a")
		b.w.Listed(list.ResourceVersion, []*v1.Pod{is})
		b.w.Set(is, want)
		synctest.Wait()
		if got := b.api.Pod("default", "a").Status.Phase; got != v1.PodRunning {
			t.Errorf("the apiserver shows %s", got)
		}
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 1 {
			t.Errorf("%d requests after the restore, want one", n)
		}
	})
}

// A cache of an apiserver may be behind another's: its list says so by its version.
func TestAListThatIsOlderThanWhatWasWrittenIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.w.Set(pod, pending())
		time.Sleep(time.Second)
		behind := b.api.Pod("default", "a")
		want := running("10.0.0.1")
		b.w.Set(pod, want)
		time.Sleep(time.Second)
		before := b.patches()
		b.w.Listed(behind.ResourceVersion, []*v1.Pod{behind})
		b.w.Set(behind, want)
		b.w.Listed(b.api.Pod("default", "a").ResourceVersion, []*v1.Pod{b.api.Pod("default", "a")})
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
}
