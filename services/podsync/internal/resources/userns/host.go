package userns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// askTimeout bounds the run of getsubids.
const askTimeout = 10 * time.Second

// HostIDs are the ids that the machine's administrator has set apart for pods:
// the subordinate ids of the user "kubelet" as getsubids tells them, or the zero
// Range when there is no such user or no getsubids. They must be enough for
// mostPods.
// Source: kubernetes.io, "Use a User Namespace With a Pod".
func HostIDs(mostPods int64, idsPerPod uint32) (Range, error) {
	var unknown user.UnknownUserError
	if _, err := user.Lookup("kubelet"); errors.As(err, &unknown) {
		return Range{}, nil
	} else if err != nil {
		return Range{}, err
	}
	program, err := exec.LookPath("getsubids")
	if err != nil {
		return Range{}, nil //nolint:nilerr // without the program nothing is set apart
	}
	users, err := ask(program, "kubelet")
	if err != nil {
		return Range{}, err
	}
	groups, err := ask(program, "-g", "kubelet")
	switch {
	case err != nil:
		return Range{}, err
	case users != groups:
		return Range{}, fmt.Errorf("the subordinate users %v and groups %v of user kubelet must be the same", users, groups)
	case users.Count < uint64(mostPods)*uint64(idsPerPod):
		return Range{}, fmt.Errorf("user kubelet has %d subordinate ids, which is too few for %d pods of %d ids each; give it more or lower maxPods", users.Count, mostPods, idsPerPod)
	}
	return users, nil
}

func ask(program string, args ...string) (Range, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return Range{}, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return parse(string(out))
}

// parse reads the one line "0: kubelet 65536 7208960".
func parse(out string) (Range, error) {
	fields := strings.Fields(out)
	if len(fields) != 4 || !strings.HasSuffix(fields[0], ":") {
		return Range{}, fmt.Errorf("getsubids must tell one range of user kubelet, not %q", strings.TrimSpace(out))
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("getsubids: %w", err)
	}
	count, err := strconv.ParseUint(fields[3], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("getsubids: %w", err)
	}
	return Range{First: first, Count: count}, nil
}
