package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/images"
)

// What the kernel's own NFS server serves on this machine: a directory as it is by default,
// where root is nobody, and one where root is root.
const (
	nfsServer   = "127.0.0.1"
	nfsSquashed = "/srv/nfs/squashed"
	nfsOpen     = "/srv/nfs/open"
	nfsExports  = nfsSquashed + " 127.0.0.0/8(rw,sync,no_subtree_check)\n" + nfsOpen + " 127.0.0.0/8(rw,sync,no_subtree_check,no_root_squash)\n"
	nfsUser     = 4001
)

// nfsUnits are masked in this machine.
var nfsUnits = []string{"rpcbind.socket", "rpcbind.service", "nfs-server.service"}

// serveFiles has the kernel serve them by the versions of NFS that are said, until the test
// ends.
func serveFiles(t *testing.T, versions string) {
	t.Helper()
	if err := writeAll(map[string]string{
		"/etc/exports":           nfsExports,
		"/etc/nfs.conf":          "[nfsd]\nthreads=4\ngrace-time=10\nlease-time=10\n" + versions,
		nfsSquashed + "/part/of": "a part",
		nfsOpen + "/whole":       "all of it",
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{nfsSquashed, nfsSquashed + "/part", nfsSquashed + "/part/of"} {
		if err := os.Chown(path, nfsUser, nfsUser); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		units := append([]string{"stop", "nfs-mountd.service", "nfs-idmapd.service", "nfsdcld.service", "rpc-statd.service"}, nfsUnits...)
		if err := errors.Join(run("systemctl", units...), run("systemctl", append([]string{"mask"}, nfsUnits...)...)); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(run("systemctl", append([]string{"unmask"}, nfsUnits...)...), run("systemctl", append([]string{"start"}, nfsUnits...)...)); err != nil {
		t.Fatal(err)
	}
}

// ofNFS is a volume of that server.
func ofNFS(name, path string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: nfsServer, Path: path, ReadOnly: readOnly}}}
}

// nfsPod has these volumes at /v and does what it is told as a user that is not root.
func nfsPod(name, script string, volumes ...corev1.Volume) corev1.Pod {
	p := testPod(name, "", "", "", "")
	user, group := int64(nfsUser), int64(4002)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &group}
	p.Spec.Volumes = volumes
	c := &p.Spec.Containers[0]
	c.Image, c.Args, c.Command = images.BusyBox, nil, []string{"sh", "-c", script}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/v/" + v.Name})
	}
	return p
}

// idles ends when it is told to.
const idles = "trap 'exit 0' TERM; sleep 100000 & wait"

// nfsMounts are the mounts of NFS on this machine.
func nfsMounts(t *testing.T) (found []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, " - nfs4 ") || strings.Contains(line, " - nfs ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// nothingOfNFSIsLeft wants no mount, and nobody who makes one or asks a server.
func nothingOfNFSIsLeft(t *testing.T) {
	t.Helper()
	if left := nfsMounts(t); len(left) > 0 {
		t.Errorf("still mounted:\n%s", strings.Join(left, "\n"))
	}
	eventually(t, "no process of a mount is left", func() error {
		mounts, err := pidsOf("mount")
		helpers, helperErr := pidsOf("mount.nfs")
		if all := append(mounts, helpers...); len(all) > 0 {
			err = errors.Join(err, fmt.Errorf("there run %v", all))
		}
		return errors.Join(err, helperErr)
	})
}

// TestPodsyncsRightsAreEnoughForNFS: podsync as its unit starts it mounts from the kernel's
// own server by NFS 4 and by NFS 3, with which the host's mount also starts statd.
func TestPodsyncsRightsAreEnoughForNFS(t *testing.T) {
	for _, c := range []struct{ version, config, shown string }{
		{"4", "vers3=n\n", "vers=4.2,"},
		{"3", "vers3=y\nvers4=n\n", "vers=3,"},
	} {
		t.Run("version "+c.version, func(t *testing.T) {
			serveFiles(t, c.config)
			name := "nfs-v" + c.version
			p := nfsPod(name, idles, ofNFS("files", nfsSquashed, false), ofNFS("seen", nfsSquashed, true), ofNFS("open", nfsOpen, false))
			mounts := &p.Spec.Containers[0].VolumeMounts
			*mounts = append(*mounts,
				corev1.VolumeMount{Name: "files", MountPath: "/v/part", SubPath: "part"},
				corev1.VolumeMount{Name: "open", MountPath: "/v/made", SubPath: "made/here"},
				corev1.VolumeMount{Name: "open", MountPath: "/v/whole", SubPath: "whole", ReadOnly: true})
			apply(t, p)
			defer remove(t, name)
			full := ready(t, name).Name
			for command, want := range map[string]string{
				"echo 1 >/v/files/f && stat -c '%u %g' /v/files/f && cat /v/files/f": "4001 4001\n1\n", // seen may know for a while that it is not there
				"cat /v/part/of /v/seen/part/of /v/whole":                            "a parta partall of it",
				"stat -c '%u %g %a' /v/files /v/part":                                "4001 4001 755\n4001 4001 755\n", // nothing is given to the group
				"stat -c '%u %g %a' /v/open":                                         "0 0 755\n",
				"stat -c '%u %g' /v/made":                                            "0 0\n",
				"echo 2 2>&1 >/v/seen/f || true":                                     "sh: can't create /v/seen/f: Read-only file system\n",
				"grep -c ' /v/files nfs4* rw,.*" + c.shown + "' /proc/mounts":        "1\n",
				"grep -c ' /v/seen nfs4* ro,' /proc/mounts":                          "1\n",
			} {
				if out, err := execute(t, full, "", "sh", "-c", command); err != nil || out != want {
					t.Errorf("%s: %q, want %q (%v)", command, out, want, err)
				}
			}
			if got, err := os.ReadFile(nfsSquashed + "/f"); err != nil || string(got) != "1\n" {
				t.Errorf("the server has %q, %v", got, err)
			}
			t.Logf("mounted:\n%s", strings.Join(nfsMounts(t), "\n"))
			remove(t, name)
			nothingOfNFSIsLeft(t)
			if _, err := os.Stat(filepath.Join(nfsOpen, "made/here")); err != nil {
				t.Errorf("what the pod had made: %v", err)
			}
			if err := errors.Join(os.Remove(nfsSquashed+"/f"), os.RemoveAll(nfsOpen+"/made")); err != nil {
				t.Error(err)
			}
		})
	}
	if got := property(t, "polylet-podsync.service", "NRestarts"); got != "0" {
		t.Errorf("podsync was restarted %s times", got)
	}
}
