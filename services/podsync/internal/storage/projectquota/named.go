package projectquota

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// longest is how much of an administrator's file is read.
const longest = 1 << 20

// namedIn are the projects that an administrator has named in files of the forms of
// projects(5), which begins lines with them, and of projid(5), which ends lines with them.
// Both are looked for in each: a number too many keeps nobody from a project.
func namedIn(files []string) (map[uint32]bool, error) {
	out := map[uint32]bool{}
	for _, path := range files {
		if err := named(path, out); err != nil {
			return nil, fmt.Errorf("read which projects are an administrator's: %w", err)
		}
	}
	return out, nil
}

func named(path string, out map[uint32]bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, longest))
	lines.Buffer(nil, longest+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		first, _, _ := strings.Cut(line, ":")
		for _, word := range []string{first, line[strings.LastIndexByte(line, ':')+1:]} {
			if id, err := strconv.ParseUint(strings.TrimSpace(word), 10, 32); err == nil {
				out[uint32(id)] = true
			}
		}
	}
	return lines.Err()
}
