package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestARefreshThatWaitedForThePodsEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.objects.setMap("cm", map[string]string{"a": "1"})
		pod := podWith(configMapVolume("v", "cm"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		f.mounts.Fail = func(call, _ string) error {
			if call == "unmount" {
				time.Sleep(time.Second)
			}
			return nil
		}
		var work sync.WaitGroup
		work.Go(func() {
			if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it has the pod's turn
		work.Go(func() {
			if _, err := f.set.refresh(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		})
		work.Wait()
		if n := len(f.set.pods); n != 0 {
			t.Errorf("%d pods are kept", n)
		}
		f.mounts.Fail = nil
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Errorf("it cannot be set up again: %v", err)
		}
	})
}

// CVE-2021-25741: what was checked is swapped for a link before it is used.
func TestALinkThatIsSwappedInWhileASubPathIsLookedUpLeadsNowhere(t *testing.T) {
	volume, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(volume, "dir", "sub"), filepath.Join(outside, "sub")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	inside, err := os.Stat(filepath.Join(volume, "dir", "sub"))
	if err != nil {
		t.Fatal(err)
	}
	stop, swapped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { swapped <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "dir"), unix.AT_FDCWD, filepath.Join(volume, "link"), unix.RENAME_EXCHANGE)
			if err != nil {
				return
			}
			n++
		}
	}()
	found := 0
	for range 20000 {
		f, err := openBeneath(volume, "dir/sub")
		if err != nil {
			continue // it led out, or was not there
		}
		info, err := f.Stat()
		_ = f.Close()
		if err != nil || !os.SameFile(info, inside) {
			t.Fatalf("it found %v outside of the volume, %v", info, err)
		}
		found++
	}
	close(stop)
	if n := <-swapped; n == 0 {
		t.Skip("this file system cannot exchange names")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside are %v, %v", entries, err)
	}
	t.Logf("found %d times", found)
}

// CVE-2024-10220, CVE-2025-1767: gitRepo ran hooks and read the node's repositories.
func TestWhatThisNodeDoesNotMakeIsRefusedWithItsName(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"gitRepo (removed from Kubernetes": {GitRepo: &v1.GitRepoVolumeSource{Repository: "/etc", Directory: "."}},
		"flexVolume (deprecated":           {FlexVolume: &v1.FlexVolumeSource{}},
		"nfs":                              {NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}},
	} {
		f := newFixture(t)
		err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: source}))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := os.Stat(filepath.Join(f.root, "pods")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was made: %v", want, err)
		}
	}
}
