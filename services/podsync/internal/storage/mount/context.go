package mount

import "strings"

// Context is the SELinux label that the filesystem at a path is mounted with, as the kernel
// writes it; empty when it is mounted with none.
func Context(path string) (string, error) {
	mounts, err := mountsOn(path)
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return contextIn(mounts[len(mounts)-1].VFSOptions), nil
}

// contextIn finds a label among options, where it has quotes if there are commas in it.
func contextIn(options string) string {
	_, after, is := strings.Cut(","+options, ",context=")
	if !is {
		return ""
	}
	if quoted, has := strings.CutPrefix(after, `"`); has {
		label, _, _ := strings.Cut(quoted, `"`)
		return label
	}
	label, _, _ := strings.Cut(after, ",")
	return label
}
