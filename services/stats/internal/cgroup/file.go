package cgroup

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// buffers hold file contents while they are parsed: no file of a cgroup is
// kept, so nothing is allocated for it.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// readFile calls parse with the contents, which it must not keep. It reports
// whether the file could be read; controllers and kernels differ in which
// files there are, so a missing one is not an error.
func readFile(dir, file string, parse func(data []byte)) bool {
	if dir == "" {
		return false
	}
	fd, err := open(dir + "/" + file)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n := 0
	for {
		if n == len(*buf) {
			*buf = append(*buf, make([]byte, len(*buf))...)
		}
		m, err := unix.Read(fd, (*buf)[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false
		}
		if m == 0 {
			break
		}
		n += m
		if n < len(*buf) && !pieces(file) {
			break // The kernel makes the whole of such a file at once.
		}
	}
	parse((*buf)[:n])
	return true
}

// pieces tells of files that the kernel makes up one line after the other, so
// that a read may end before the file does.
func pieces(file string) bool { return file == "cgroup.procs" }

func open(name string) (int, error) {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func linkCount(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Nlink), nil
}

func modTime(file string) (time.Time, bool) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return time.Time{}, false
	}
	return time.Unix(st.Mtim.Unix()), true
}

// readUint reads a file that holds one number or "max".
func readUint(dir, file string) (value uint64, ok bool) {
	readFile(dir, file, func(data []byte) { value, ok = parseUint(bytes.TrimSpace(data)) })
	return value, ok
}

// readPairs calls each for every "key value" line.
func readPairs(dir, file string, each func(key []byte, value uint64)) bool {
	return readFile(dir, file, func(data []byte) {
		for line := range bytes.Lines(data) {
			key, rest, found := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
			if !found {
				continue
			}
			if value, ok := parseUint(rest); ok {
				each(key, value)
			}
		}
	})
}

// parseUint parses decimal digits; "max" is the largest number, a negative
// number (v1's "no limit" in some files) too.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 {
		return 0, false
	}
	if string(b) == "max" || b[0] == '-' {
		return math.MaxUint64, true
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// parseDecimal parses a number such as "12.34".
func parseDecimal(b []byte) float64 {
	whole, fraction, _ := bytes.Cut(b, []byte{'.'})
	n, _ := parseUint(whole)
	value := float64(n)
	scale := 0.1
	for _, c := range fraction {
		if c < '0' || c > '9' {
			break
		}
		value += float64(c-'0') * scale
		scale /= 10
	}
	return math.Round(value*100) / 100
}
