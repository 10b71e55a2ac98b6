package mount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Fullness is how full a filesystem is.
type Fullness struct {
	// Capacity, Available and Used are bytes; Available is what others than root may have.
	Capacity  uint64 `json:"capacity"`
	Available uint64 `json:"available"`
	Used      uint64 `json:"used"`
	// Inodes and InodesFree are numbers; zero where there are none.
	Inodes     uint64 `json:"inodes"`
	InodesFree uint64 `json:"inodes_free"`
}

const callFullness = "fullness"

// answersWithin is how long a server has to say how full its filesystem is.
const answersWithin = 10 * time.Second

// errSlow ends the wait for how full a filesystem is.
var errSlow = errors.New("its server does not answer")

// Fullness asks the server of a filesystem. No thread of this process waits, and of one
// server only so much is asked at once.
func (k *Kernel) Fullness(ctx context.Context, path string) (f Fullness, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, errSlow)
	defer cancel()
	answer, err := k.looks.Do(ctx, Filesystem(path), callFullness, path)
	if err == nil {
		err = json.Unmarshal([]byte(answer), &f)
	}
	if err != nil {
		return Fullness{}, fmt.Errorf("how full %s is: %w", path, err)
	}
	return f, nil
}

func fullnessCall(args []string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s takes one path", callFullness)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(args[0], &st); err != nil {
		return "", err
	}
	answer, err := json.Marshal(fullness(&st))
	return string(answer), err
}

// fullness reads what the kernel says. A server may say more that is free than there is.
func fullness(st *unix.Statfs_t) Fullness {
	block := uint64(max(st.Bsize, 0)) //nolint:gosec // It is not negative.
	return Fullness{
		Capacity: st.Blocks * block, Available: st.Bavail * block, Used: (st.Blocks - min(st.Bfree, st.Blocks)) * block,
		Inodes: st.Files, InodesFree: st.Ffree,
	}
}
