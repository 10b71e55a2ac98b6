package disk

import "golang.org/x/sys/unix"

// Apart says whether two paths are on different filesystems. Parts of one that have
// device numbers of their own, as subvolumes of btrfs, have the same space and are
// not apart.
func Apart(a, b string) bool {
	var x, y unix.Stat_t
	if unix.Stat(a, &x) != nil || unix.Stat(b, &y) != nil || x.Dev == y.Dev {
		return false
	}
	one, err1 := Statfs(a)
	other, err2 := Statfs(b)
	if err1 != nil || err2 != nil {
		return false
	}
	return one.Capacity != other.Capacity || one.Free != other.Free || one.Inodes != other.Inodes
}
