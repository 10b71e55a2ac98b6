package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestOneDirectoryOfConfigurationsHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet", "configuration")
	killed, release, err := ownKept(dir, klog.Background())
	if err != nil || killed {
		t.Fatal(killed, err)
	}
	if _, _, err := ownKept(dir, klog.Background()); err == nil || !strings.Contains(err.Error(), "another polylet owns the configuration in "+dir) || !strings.Contains(err.Error(), "--live-config=false") {
		t.Errorf("a second owner: %v", err)
	}
	release()
	killed, again, err := ownKept(dir, klog.Background())
	if err != nil || killed {
		t.Fatalf("after the first one's end: %v %v", killed, err)
	}
	again()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{string(boot): true, "of another run of the machine, of which nothing runs": false} {
		put(t, filepath.Join(dir, ownerLock), text)
		killed, release, err := ownKept(dir, klog.Background())
		if err != nil || killed != want {
			t.Errorf("%q: killed %v, %v", text, killed, err)
		}
		release()
	}
}
