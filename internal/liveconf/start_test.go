package liveconf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

func TestAFileThatWasChangedWhilePolyletWasAwayIsTakenAndTried(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.end()
		f.write("maxPods: 108\ncgroupDriver: systemd\n") // a start may change what a running node cannot
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(30 * time.Second); l.Config.MaxPods != 108 || l.Config.CgroupDriver != "systemd" || state.Phase != Trying || state.Generation != 2 {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
		if _, state, restarts := f.after(2 * time.Minute); state.Phase != Good || restarts != "" {
			t.Errorf("%+v, started again %q", state, restarts)
		}
		f.end()
		f.crashes = crashesWith("podsync", 109)
		f.write("maxPods: 109\ncgroupDriver: systemd\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, restarts := f.after(time.Minute); l.Config.MaxPods != 108 || state.Phase != WentBack || !strings.Contains(restarts, "podsync") {
			t.Errorf("a bad one at start: %d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
	})
}

func TestABadFileAtStartIsRefusedUnlessAConfigurationWasGoodBefore(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.end()
		f.write("maxPods: many\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		l, state, _ := f.after(time.Minute)
		if l.Config.MaxPods != 100 || state.Phase != Refused || state.Generation != 1 || !f.said("THE CONFIGURATION CANNOT BE USED", "maxPods") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
		f.end()
		if err := os.RemoveAll(f.dir); err != nil {
			t.Fatal(err)
		}
		if err := f.start(); err == nil || !strings.Contains(err.Error(), "maxPods") {
			t.Errorf("without one: %v", err)
		}
	})
}

func TestAConfigurationThatWasBadIsNotTriedAtTheNextStart(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\n")
		f.after(time.Minute)
		f.end()
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		l, state, _ := f.after(time.Minute)
		if l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "podsync ended 3 times") || !f.said("THE CONFIGURATION CANNOT BE USED") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
		if _, err := os.Stat(state.File); err != nil {
			t.Error(err)
		}
	})
}

func TestDamagedCheckpointsAreNamedAndSetAside(t *testing.T) {
	for _, name := range []string{goodFile, activeFile} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.end()
			path := filepath.Join(f.dir, name)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(raw), `"maxPods":100`, `"maxPods":900`, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := f.start(); err != nil {
				t.Fatal(err)
			}
			if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || state.Phase != Good {
				t.Errorf("%s: %d pods, %+v", name, l.Config.MaxPods, state)
			}
			aside, err := filepath.Glob(path + ".damaged-*")
			if err != nil || len(aside) != 1 || !f.said("damaged", name) {
				t.Errorf("%s was set aside as %v", name, aside)
			}
			if good := LastKnownGood(f.dir, f.args); good == nil || good.Config.MaxPods != 100 {
				t.Errorf("%s: it is not written anew", name)
			}
		})
	}
}

func TestAMachineThatCannotRunTheLastKnownGoodConfigurationEitherDoesNotStart(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.end()
		f.check = func(*kubeletconfig.Loaded) error { return errors.New("swap is on") }
		if err := f.start(); err == nil || !strings.Contains(err.Error(), "swap is on") {
			t.Errorf("the files are as they were: %v", err)
		}
		f.write("maxPods: many\n")
		if err := f.start(); err == nil || !strings.Contains(err.Error(), "maxPods") || !strings.Contains(err.Error(), "swap is on") {
			t.Errorf("the file is bad as well: %v", err)
		}
		f.check = func(l *kubeletconfig.Loaded) error {
			if l.Config.MaxPods != 100 {
				return errors.New("not here")
			}
			return nil
		}
		f.write("maxPods: 101\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 100 || state.Phase != Refused {
			t.Errorf("only the file asks for what it cannot do: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestWhatAnotherNodeHasKeptIsNotUsed(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\n")
		f.after(time.Minute)
		f.end()
		f.args = []string{"--hostname-override=another"} // the machine's disk was copied
		if LastKnownGood(f.dir, f.args) != nil {
			t.Error("it has another's last known good configuration")
		}
		f.write("maxPods: many\n")
		if err := f.start(); err == nil || !strings.Contains(err.Error(), "maxPods") || !f.said(goodFile, `node \"n\"`) {
			t.Errorf("a bad file: %v", err)
		}
		f.crashes = crashesWith("podsync", 0)
		f.write("maxPods: 102\n") // which was bad there
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 102 || state.Phase != Good {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
		if good := LastKnownGood(f.dir, f.args); good == nil || good.Config.MaxPods != 102 {
			t.Error("it has none of its own then")
		}
	})
}

func TestDirectoriesAboveWhatIsKeptAreAsWithoutIt(t *testing.T) {
	root := filepath.Join(t.TempDir(), "kubelet")
	l := loaded(t, "--hostname-override=n")
	if _, _, err := New(Config{Dir: filepath.Join(root, "polylet", "configuration")}).Start(l, nil); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{root: 0o750, filepath.Join(root, "polylet"): 0o750, filepath.Join(root, "polylet", "configuration"): 0o700} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", dir, err, info.Mode(), want)
		}
	}
}

func TestAMachineThatChangesIsNoChangeOfTheFiles(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.end()
		swap := false
		f.check = func(*kubeletconfig.Loaded) error {
			if swap {
				return errors.New("swap is on")
			}
			return nil
		}
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		f.after(time.Minute)
		swap = true // somebody runs swapon
		f.controller.Changed()
		if _, state, restarts := f.after(time.Minute); state.Phase != Good || restarts != "" {
			t.Errorf("the files are as they were: %+v, started again %q", state, restarts)
		}
		f.write("maxPods: 101\n")
		if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 100 || state.Phase != Refused {
			t.Errorf("a change that would not start: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}
