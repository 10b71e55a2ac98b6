package logs

import (
	"bytes"
	"io"
	"os"
)

// tailBlock is how much of a file is read at a time when looking for its last
// lines, in bytes.
const tailBlock = 64 << 10

// seekTail moves to the first of the last n lines. A last line without its end
// counts as a line.
func seekTail(f *os.File, n int64) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 || end == 0 {
		return err
	}
	buf := make([]byte, tailBlock)
	at := end
	for at > 0 {
		size := min(int64(len(buf)), at)
		block := buf[:size]
		at -= size
		if _, err := f.ReadAt(block, at); err != nil && err != io.EOF {
			return err
		}
		if at+size == end && block[size-1] == '\n' {
			block = block[:size-1] // it ends the last line, it does not begin another
		}
		for {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			if n--; n == 0 {
				_, err := f.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
			block = block[:i]
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
