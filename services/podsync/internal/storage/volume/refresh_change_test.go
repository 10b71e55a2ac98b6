package volume

import (
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

func TestAChangedObjectReachesItsFileAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		f.objects.setMap("cm", map[string]string{"k": "old"})
		if err := f.set.Setup(ctx, podWith(configMapVolume("v", "cm"))); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		f.objects.setMap("cm", map[string]string{"k": "new"})
		f.set.ObjectChanged([]types.UID{"uid-1", "unknown"})
		synctest.Wait()
		if got := f.files(t, "v"); got["k"] != "new" || time.Since(start) != 0 {
			t.Errorf("after %v the file holds %q", time.Since(start), got["k"])
		}
		if len(f.changed) != 0 {
			t.Error("a pod was told to try again, which its worker is told by others")
		}
		stop()
	})
}

func TestATokenIsRenewedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}})
		if err := f.set.Setup(ctx, pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := f.files(t, "v")["token"]; got != "token-1" {
			t.Errorf("after 59 minutes: %s", got)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := f.files(t, "v")["token"]; got != "token-2" {
			t.Errorf("after an hour: %s", got)
		}
		stop()
	})
}

// A volume that is tried again alone leaves the others, and when they are due, as
// they are.
func TestTheVolumesThatAreNamedAreSetUpAndNoOthers(t *testing.T) {
	f := newFixture(t)
	token := v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
	}}}}
	pod := podWith(token, configMapVolume("late", "m"), configMapVolume("absent", "n"))
	var failed podstate.VolumeErrors
	if err := f.set.Setup(t.Context(), pod, "", "token", "late", "absent"); !errors.As(err, &failed) || len(failed) != 2 || failed[0].Volume != "late" || failed[1].Volume != "absent" {
		t.Fatalf("error %v", err)
	}
	st := f.set.state(pod.UID)
	due := st.next
	f.objects.setMap("m", map[string]string{"k": "x"})
	if err := f.set.Setup(t.Context(), pod, "", "late"); err != nil {
		t.Fatal(err)
	}
	if got := f.files(t, "token")["token"]; got != "token-1" || due.IsZero() || !st.next.Equal(due) {
		t.Errorf("token %s, due %s, before %s", got, st.next, due)
	}
	if f.files(t, "late")["k"] != "x" || st.paths["late"] == "" || st.paths["absent"] != "" {
		t.Errorf("set up %v", st.paths)
	}
}

// A machine that sleeps lets no timer run on, and its clock jumps when it wakes.
func TestATokenThatIsDueByTheWallClockIsRenewedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}})
		if err := f.set.Setup(ctx, pod); err != nil {
			t.Fatal(err)
		}
		// Two hours of sleep: the wall clock is past what the timer waits for.
		st := f.set.state(pod.UID)
		f.set.mu.Lock()
		st.next = st.next.Round(0).Add(-2 * time.Hour)
		f.set.mu.Unlock()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := f.files(t, "v")["token"]; got != "token-2" {
			t.Errorf("a minute after the machine woke: %s", got)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := f.files(t, "v")["token"]; got != "token-2" {
			t.Errorf("it was renewed, and five minutes later it is %s", got)
		}
		stop()
	})
}

func TestNewLabelsReachTheDownwardFiles(t *testing.T) {
	f := newFixture(t)
	pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
	}}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod = pod.DeepCopy()
	pod.Labels["app"] = "y"
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := f.files(t, "v")["labels"]; got != `app="y"` {
		t.Errorf("labels = %s", got)
	}
}

func TestWhatChangedBeforeRunIsRefreshedByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.objects.setMap("cm", map[string]string{"k": "old"})
		if err := f.set.Setup(t.Context(), podWith(configMapVolume("v", "cm"))); err != nil {
			t.Fatal(err)
		}
		f.objects.setMap("cm", map[string]string{"k": "new"})
		f.set.ObjectChanged([]types.UID{"uid-1"})
		_, stop := f.runs(t)
		synctest.Wait()
		if got := f.files(t, "v")["k"]; got != "new" {
			t.Errorf("the file holds %q", got)
		}
		stop()
	})
}

func TestAFailedRefreshKeepsTheOldFilesAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		f.objects.setMap("cm", map[string]string{"k": "old"})
		if err := f.set.Setup(ctx, podWith(configMapVolume("v", "cm"))); err != nil {
			t.Fatal(err)
		}
		f.objects.mu.Lock()
		delete(f.objects.maps, "ns/cm")
		f.objects.mu.Unlock()
		f.set.ObjectChanged([]types.UID{"uid-1"})
		synctest.Wait()
		if got := f.files(t, "v")["k"]; got != "old" {
			t.Errorf("without the object the file holds %q", got)
		}
		f.objects.setMap("cm", map[string]string{"k": "back"})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := f.files(t, "v")["k"]; got != "back" {
			t.Errorf("a second later the file holds %q", got)
		}
		stop()
	})
}

// podsync may be killed at any time, also after a ConfigMap was deleted whose pods run.
func TestContentThatCannotBeMadeAnewStandsAfterARestart(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("cm", map[string]string{"k": "v"})
	f.objects.secrets["ns/s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("s")}}
	pod := podWith(configMapVolume("v", "cm"), v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	where, _ := f.set.HostPath(pod.UID, "v")
	f.set = f.restarted()
	delete(f.objects.maps, "ns/cm")
	delete(f.objects.secrets, "ns/s")
	if got := standing(t, f.set.Setup(t.Context(), pod)); !slices.Equal(got, []string{"v", "s"}) {
		t.Errorf("standing: %v", got)
	}
	if now, ok := f.set.HostPath(pod.UID, "v"); !ok || now != where || f.files(t, "v")["k"] != "v" {
		t.Errorf("at %q, %v", now, ok)
	}
	f.objects.setMap("cm", map[string]string{"k": "new"})
	if err := f.set.Setup(t.Context(), pod); err == nil || f.files(t, "v")["k"] != "new" {
		t.Errorf("when one is there again: %v, %v", err, f.files(t, "v"))
	}

	// The machine was booted: what was in memory is gone.
	f.set, f.mounts = f.restarted(), mount.NewFake()
	f.set.deps.Mounter = f.mounts
	delete(f.objects.maps, "ns/cm")
	if got := standing(t, f.set.Setup(t.Context(), pod)); !slices.Equal(got, []string{"v"}) {
		t.Errorf("standing after a reboot: %v", got)
	}
}

// standing lists the volumes that stand though they could not be set up.
func standing(t *testing.T, err error) []string {
	t.Helper()
	var failed podstate.VolumeErrors
	if !errors.As(err, &failed) {
		t.Fatalf("set up without the objects: %v", err)
	}
	return failed.Standing()
}

func TestNothingStandsOfWhatNeverWasSetUp(t *testing.T) {
	f := newFixture(t)
	pod := podWith(configMapVolume("v", "cm"))
	if got := standing(t, f.set.Setup(t.Context(), pod)); len(got) != 0 {
		t.Errorf("standing: %v", got)
	}
}

// A hostPath is the host's: podsync has set up nothing of it that could stand, and the
// runtime makes an empty directory where there is none, on whatever disk that is.
func TestAHostPathThatIsNotAsTheSpecSaysDoesNotStandAfterARestart(t *testing.T) {
	f := newFixture(t)
	disk := t.TempDir() + "/disk"
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	pod := podWith(v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: disk, Type: ptr.To(v1.HostPathDirectory)}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(disk); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	if got := standing(t, f.set.Setup(t.Context(), pod)); len(got) != 0 {
		t.Errorf("standing: %v", got)
	}
	if path, ok := f.set.HostPath(pod.UID, "h"); ok {
		t.Errorf("it is said to be at %s", path)
	}
}
