package disk

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestAWalkOfMillionsOfHardLinksCostsLittleAndCountsThemOnce(t *testing.T) {
	const files, names = 600_000, 3
	w := walk{linked: map[inode]struct{}{}}
	for range names {
		for i := range files {
			w.count(&unix.Stat_t{Ino: uint64(i + 2), Nlink: names, Blocks: 8, Mode: unix.S_IFREG})
		}
	}
	if most := 1 << 18; len(w.linked) > most {
		t.Errorf("%d files are remembered, more than %d", len(w.linked), most)
	}
	if n := w.tree.Inodes; n < files-1 || n > files+1 {
		t.Errorf("%d files, want %d", n, files)
	}
	if b := w.tree.Bytes; b < files*4096*999/1000 || b > files*4096*1001/1000 {
		t.Errorf("%d bytes, want about %d", b, files*4096)
	}
}
