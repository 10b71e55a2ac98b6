package volume

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestHowEachVolumeOfAPodStandsIsKnown(t *testing.T) {
	driver := &fakeDriver{}
	f := withCSI(t, namer{driver})
	f.set.deps.Claims = f.claims
	dir := t.TempDir()
	f.bind("c", "pv", hostPathPV(dir))
	pod := podWith(csiVolume("of-driver", "csi.x"), claimVolume("of-claim", "c"), claimVolume("missing", "none"), emptyDirVolume("spare"))
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "of-image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "i"}}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == "spare" })
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "of-image", MountPath: "/image"})
	check := func(when string, ended bool, want ...Standing) {
		t.Helper()
		got := f.set.Standings(pod, ended)
		for i := range got {
			if (got[i].Path != "") != (got[i].Progress == Present && got[i].Name != "of-image") {
				t.Errorf("%s: %s lies at %q", when, got[i].Name, got[i].Path)
			}
			got[i].Path, got[i].Dir = "", ""
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", when, got, want)
		}
	}
	standings := func(driver, claim, missing, image Progress) []Standing {
		pv, plugin := "", "kubernetes.io/csi"
		if claim == Present || claim == Gone && driver == Going {
			pv, plugin = "pv", "kubernetes.io/host-path"
		}
		return []Standing{
			{Name: "of-driver", Plugin: "kubernetes.io/csi", Driver: "csi.x", Progress: driver},
			{Name: "of-claim", Plugin: plugin, Claim: "c", PV: pv, Progress: claim},
			{Name: "missing", Plugin: "kubernetes.io/csi", Claim: "none", Progress: missing},
			{Name: "spare", Plugin: "kubernetes.io/empty-dir", Progress: Unused},
			{Name: "of-image", Plugin: "kubernetes.io/image", Progress: image},
		}
	}
	check("before", false, standings(Waiting, Waiting, Waiting, Waiting)...)
	if err := f.set.Setup(t.Context(), pod); err == nil {
		t.Fatal("a claim that is not there was found")
	}
	check("set up", false, standings(Present, Present, Waiting, Present)...)

	driver.fail = errors.New("it hangs")
	if err := f.set.Teardown(t.Context(), pod.UID); err == nil {
		t.Fatal("what hangs was taken down")
	}
	check("on their way", true, standings(Going, Gone, Going, Gone)...)
	driver.fail = nil
	f.set.MayWork([]types.UID{pod.UID})
	if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	check("gone", true, standings(Gone, Gone, Gone, Gone)...)
}

// keeping is a driver that takes nothing back.
type keeping struct{ *drives }

func (keeping) Teardown(context.Context, Remains) error { return errors.New("it hangs") }
func (keeping) DriverOf(string) string                  { return "csi.x" }
func (keeping) Knows(driver string) bool                { return driver == "csi.x" }

// TestWhatIsKnownOfAVolumeIsShownUntilItIsTakenDown, and that others of its pod are gone.
func TestWhatIsKnownOfAVolumeIsShownUntilItIsTakenDown(t *testing.T) {
	for name, restarted := range map[string]bool{"by who has set it up": false, "after a restart": true} {
		f, d := withAttacher(t)
		f.set.deps.CSI, f.set.drivers[pluginCSI] = keeping{d}, keeping{d}
		f.bind("c", "pv", csiPV())
		pod := podWith(claimVolume("v", "c"), emptyDirVolume("e"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if restarted {
			f.set = New(f.set.cfg, f.set.deps)
		}
		for range 2 { // the second finds the other one gone already
			if err := f.set.Teardown(t.Context(), pod.UID); err == nil {
				t.Fatal("what hangs was taken down")
			}
			got := f.set.Standings(pod, true)
			want := []Standing{
				{Name: "v", Plugin: "kubernetes.io/csi", Driver: "csi.x", Claim: "c", PV: "pv", Dir: "pv", Progress: Going},
				{Name: "e", Plugin: "kubernetes.io/empty-dir", Dir: "e", Progress: Gone},
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
			}
		}
	}
}
