package main

import (
	"path/filepath"
	"slices"
	"strings"
)

// kubeletName is the other name that this program answers to.
const kubeletName = "kubelet"

// arguments are what the command line says to the root command. A program that
// was started under the kubelet's name, with flags or nothing, is `polylet run`:
// what starts a kubelet, and kubeadm, which asks it for its version, find one. Its
// children, and people who type a command, keep polylet's commands under this name
// too.
func arguments(argv []string) []string {
	given := argv[1:]
	if filepath.Base(argv[0]) != kubeletName || len(given) > 0 && !strings.HasPrefix(given[0], "-") {
		return given
	}
	return slices.Concat([]string{runName}, given)
}
