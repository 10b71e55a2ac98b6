// Command sh is the shell of the suite's images: busybox's, except that it runs
// a bare `env` itself. Debian's busybox drops variables with names such as
// data-1 before it runs a command, and tests print exactly those. It also runs
// the image's /bin/nc where busybox would take its own, which knows no UDP, and
// /bin/dd where that is to write past the cache. It must never change what any
// other command line does.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

const busybox = "/bin/busybox"

func main() {
	args := os.Args // busybox tells by the first one that it is to be sh
	if slices.Equal(args[1:], []string{"-c", "env"}) {
		args = []string{"env"}
	}
	if i := slices.Index(args, "-c"); i > 0 && i+1 < len(args) && strings.Contains(args[i+1], "nc ") {
		args = slices.Clone(args)
		args[i+1] = `nc() { /bin/nc "$@"; }; ` + args[i+1]
	}
	if i := slices.Index(args, "-c"); i > 0 && i+1 < len(args) && strings.Contains(args[i+1], "oflag=nocache") {
		args = slices.Clone(args)
		args[i+1] = `dd() { /bin/dd "$@"; }; ` + args[i+1]
	}
	err := syscall.Exec(busybox, args, os.Environ())
	fmt.Fprintf(os.Stderr, "exec %s: %v\n", busybox, err)
	os.Exit(127)
}
