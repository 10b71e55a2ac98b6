package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Served reads the table of mounts, in which no path has a link. dir itself is not looked
// at: a server may be asked then.
func (k *Kernel) Served(dir string) (map[string]bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("list the mounts below %s: %w", dir, err)
	}
	at := filepath.Join(parent, filepath.Base(dir))
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(at))
	if err != nil {
		return nil, fmt.Errorf("list the mounts below %s: %w", dir, err)
	}
	found := map[string]bool{}
	for _, m := range mounts {
		if isServed(m.FSType) { // of those on one place each may be
			found[filepath.Join(dir, strings.TrimPrefix(m.Mountpoint, at))] = true
		}
	}
	return found, nil
}

// AskedAt reads the table of mounts, and goes along the path by what lies outside of those
// that somebody answers for: its links are read, too.
func (k *Kernel) AskedAt(path string) (string, error) {
	var at []string
	_, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		if isServed(m.FSType) {
			at = append(at, m.Mountpoint)
		}
		return true, false
	})
	if err != nil {
		return "", fmt.Errorf("list the mounts that %s may lie on: %w", path, err)
	}
	if len(at) == 0 {
		return "", nil
	}
	return askedAt(path, at, os.Readlink), nil
}

// mostLinks is how many links the kernel follows in one path.
const mostLinks = 40

// askedAt is the first place that a path comes to where somebody is asked. One with more
// links than the kernel follows comes to its end there.
func askedAt(path string, at []string, readlink func(string) (string, error)) string {
	done, left := "/", strings.Split(path, "/")
	for links := 0; ; {
		if slices.Contains(at, done) {
			return done
		}
		if len(left) == 0 || links > mostLinks {
			return ""
		}
		done, left = filepath.Join(done, left[0]), left[1:]
		if slices.Contains(at, done) {
			return done
		}
		to, err := readlink(done)
		if err != nil {
			continue
		}
		links++
		if !filepath.IsAbs(to) {
			to = filepath.Dir(done) + "/" + to // its .. is of where it leads, which is gone along
		}
		done, left = "/", append(strings.Split(to, "/"), left...)
	}
}

// isServed says whether somebody is asked about a filesystem of this type who may not
// answer; who looks below an autofs has a server mounted. One that is not known is taken for the kernel's own.
func isServed(filesystem string) bool {
	switch filesystem {
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "virtiofs", "afs", "coda", "orangefs",
		"lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2", "fuse", "fuseblk", "autofs":
		return true
	}
	return strings.HasPrefix(filesystem, "fuse.")
}
