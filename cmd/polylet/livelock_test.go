package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

func TestOneDirectoryOfConfigurationsHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet", "configuration")
	killed, release, err := ownKept(t.Context(), dir, bootIDFile, klog.Background())
	if err != nil || killed {
		t.Fatal(killed, err)
	}
	if _, _, err := ownKept(t.Context(), dir, bootIDFile, klog.Background()); err == nil || !strings.Contains(err.Error(), "another polylet owns the configuration in "+dir) || !strings.Contains(err.Error(), "--live-config=false") {
		t.Errorf("a second owner: %v", err)
	}
	release()
	killed, again, err := ownKept(t.Context(), dir, bootIDFile, klog.Background())
	if err != nil || killed {
		t.Fatalf("after the first one's end: %v %v", killed, err)
	}
	again()
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{string(boot): true, "of another run of the machine, of which nothing runs": false} {
		put(t, filepath.Join(dir, ownerLock), text)
		killed, release, err := ownKept(t.Context(), dir, bootIDFile, klog.Background())
		if err != nil || killed != want {
			t.Errorf("%q: killed %v, %v", text, killed, err)
		}
		release()
	}
}

// A service manager may ask twice: "systemctl kill", then "systemctl restart". The second
// signal ends it at once, and what the files say by then is what the node starts with.
func TestAnOwnerThatIsAskedToEndAndEndedAtOnceWasNotKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet", "configuration")
	synctest.Test(t, func(t *testing.T) {
		ctx, asked := context.WithCancel(t.Context())
		_, release, err := ownKept(ctx, dir, bootIDFile, klog.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		held, err := os.ReadFile(filepath.Join(dir, ownerLock))
		if err != nil || len(held) == 0 {
			t.Errorf("while it runs: %q, %v", held, err)
		}
		asked()
		synctest.Wait()
		left, err := os.ReadFile(filepath.Join(dir, ownerLock))
		if err != nil || len(left) != 0 {
			t.Errorf("when it was asked to end: %q, %v", left, err)
		}
		if _, _, err := ownKept(t.Context(), dir, bootIDFile, klog.Background()); err == nil {
			t.Error("another owns it though it has not ended")
		}
	})
}

func TestAFileSystemWithoutLocksKeepsNoNodeFromStarting(t *testing.T) {
	var said []string
	log := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	for _, err := range []error{unix.ENOLCK, unix.EOPNOTSUPP} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			killed, release, got := ownKeptBy(t.Context(), func(int, int) error { return err }, filepath.Join(t.TempDir(), "kept"), "", log)
			if got != nil || killed || time.Since(begun) > 0 {
				t.Fatalf("%v: %v, %v after %v", err, killed, got, time.Since(begun))
			}
			release()
		})
	}
	if len(said) != 2 || !strings.Contains(said[0], "Nobody can be kept") {
		t.Errorf("said %q", said)
	}
}

// Under systemd handout sees nothing of /proc/sys, and has no use for it: that is no error
// to say at each start.
func TestAnOwnerThatHasNoUseForTheRunOfTheMachineSaysNothingOfIt(t *testing.T) {
	var said []string
	log := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	dir := filepath.Join(t.TempDir(), "polylet", "configuration")
	killed, release, err := ownKept(t.Context(), dir, "", log)
	if err != nil || killed || len(said) > 0 {
		t.Errorf("killed %v, %v, said %q", killed, err, said)
	}
	release()
	_, release, err = ownKept(t.Context(), dir, filepath.Join(dir, "none"), log)
	if err != nil || len(said) != 1 {
		t.Errorf("%v, said %q", err, said)
	}
	release()
}
