// Command sh is the shell of the suite's images: busybox's, except that it runs
// a bare `env` itself. Debian's busybox drops variables with names such as
// data-1 before it runs a command, and tests print exactly those. It must never
// change what any other command line does.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

const busybox = "/bin/busybox"

func main() {
	args := os.Args // busybox tells by the first one that it is to be sh
	if slices.Equal(args[1:], []string{"-c", "env"}) {
		args = []string{"env"}
	}
	err := syscall.Exec(busybox, args, os.Environ())
	fmt.Fprintf(os.Stderr, "exec %s: %v\n", busybox, err)
	os.Exit(127)
}
