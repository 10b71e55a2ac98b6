package mount

import (
	"fmt"
	"path/filepath"
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
