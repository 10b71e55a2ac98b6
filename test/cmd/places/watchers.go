package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// spared are the inotify instances that are left to what else begins on the machine.
const spared = 40

// limit is how many inotify instances a user may have; zero when it is not known.
func limit() int {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// used is how many there are now, as far as this user may see: what runs beside this.
func used() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // what has ended meanwhile has none
	for _, file := range files {
		if what, err := os.Readlink(file); err == nil && what == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// room is how many of the places there are when each needs so many of the kernel's
// watchers: one at least.
func room(places, watchers, limit, used int) int {
	if watchers <= 0 || limit <= 0 {
		return places
	}
	n := max(1, min(places, (limit-max(used, spared))/watchers))
	if n < places {
		fmt.Printf("%d places instead of %d: %d of fs.inotify.max_user_instances=%d are in use\n", n, places, used, limit)
	}
	return n
}
