package mount

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SizeOfDevice is how many bytes a block device has, by what the kernel says of it: the
// device is not opened, since its disk may not answer.
func SizeOfDevice(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("how large %s is: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("how large %s is: it is no block device", path)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		return 0, fmt.Errorf("how large %s is: %w", path, err)
	}
	const sector = 512 // whatever the device's own is
	sectors, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return sectors * sector, err
}
