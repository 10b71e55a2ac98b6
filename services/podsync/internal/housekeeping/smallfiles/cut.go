package smallfiles

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// blockBytes is the unit of st_blocks.
const blockBytes = 512

// cut shortens a file to limit bytes, and gives back what it holds on the disk
// behind them: space can be taken there without the size growing (fallocate with
// KEEP_SIZE). It returns what the file took before, by size or on the disk,
// whichever is more, of a file that is being run (ETXTBSY) too. What is no plain
// file is left alone. The name is the node's own, and a container has the file
// itself mounted, so it cannot put another in its place.
func cut(file string, limit int64) (was int64, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
			return 0, nil
		}
		var st unix.Stat_t
		if errors.Is(err, unix.ETXTBSY) && unix.Lstat(file, &st) == nil {
			was = taken(&st)
		}
		return was, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", file, err)
	}
	was = taken(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFREG || was <= limit {
		return was, nil
	}
	stays := min(st.Size, limit)
	if st.Size <= limit {
		// All that is taken behind the end goes when the file gets shorter, but on
		// some filesystems not when it is cut to the size that it has.
		err = unix.Ftruncate(int(f.Fd()), stays+1)
	}
	if err = errors.Join(err, unix.Ftruncate(int(f.Fd()), stays)); err != nil {
		err = fmt.Errorf("cut %s to %d bytes: %w", file, stays, err)
	}
	return was, err
}

func taken(st *unix.Stat_t) int64 { return max(st.Size, st.Blocks*blockBytes) }
