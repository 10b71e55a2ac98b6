package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/uds"
)

// answerWithin is how long a service may take to answer a person.
const answerWithin = 3 * time.Second

// inspectCommand is a command that asks a running node. ask gets the socket
// directory and the arguments.
func inspectCommand(use, short string, args cobra.PositionalArgs, ask func(cmd *cobra.Command, dir string, args []string) error) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SetOut(&visible{out: cmd.OutOrStdout()})
			return ask(cmd, dir, args)
		},
	}
	cmd.Flags().StringVar(&dir, "socket-dir", daemon.DefaultSocketDir, "Directory of the node's sockets.")
	return cmd
}

// dial connects to a service, with a clear error when nothing is there.
func dial(dir, service string) (*grpc.ClientConn, error) {
	path := uds.Path(dir, service)
	_, err := os.Stat(path)
	if err == nil {
		err = unix.Access(path, unix.W_OK) // what connecting asks for
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no socket %s: start the node (polylet run, or systemctl start polylet-%s.socket), or pass --socket-dir; if it runs, its sockets were removed: polylet run makes them anew within a minute, systemd when it is told to (systemctl restart polylet-%s.socket polylet-%s.service)", path, service, service, service)
	case errors.Is(err, fs.ErrPermission):
		return nil, &noAccess{path: path, group: groupOf(filepath.Dir(path))}
	case err != nil:
		return nil, err
	}
	return rpc.DialServer(path, func(uid uint32) bool { return mayServe(service, uid) })
}

// noAccess says that a socket may not be opened by who asks: whether anybody serves
// it nobody knows.
type noAccess struct{ path, group string }

// Error implements error.
func (n *noAccess) Error() string {
	return fmt.Sprintf("%s may not be opened: become root or a member of group %s (usermod -aG %s <user>, then log in anew)", n.path, n.group, n.group)
}

// usualGroup is the group that an installation makes for the sockets.
const usualGroup = "polylet"

// groupOf names the group that may reach a socket: that of its directory, or the one
// that the installation makes.
func groupOf(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return usualGroup
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Gid == 0 {
		return usualGroup
	}
	group, err := user.LookupGroupId(strconv.Itoa(int(st.Gid)))
	if err != nil {
		return strconv.Itoa(int(st.Gid))
	}
	return group.Name
}

// mayServe says, to a person, whether a service may run as a user: its own, or
// one of the numbers that are taken where it has none.
func mayServe(service string, uid uint32) bool {
	if uid >= firstFreeID && uid <= lastFreeID {
		return true
	}
	own, err := rpc.LookupUID("polylet-" + service)
	return err == nil && own == uid
}

// explainCall adds to a failed call what a person can do.
func explainCall(service string, err error) error {
	switch {
	case errors.Is(err, rpcerr.ErrUnavailable):
		return fmt.Errorf("%s does not answer: it starts, hangs, or ends again and again; %s (%w)", service, logOf(service), err)
	case errors.Is(err, rpcerr.ErrTimeout):
		return fmt.Errorf("%s did not answer within %s: it starts, hangs, or ends again and again; %s", service, answerWithin, logOf(service))
	case errors.Is(err, rpcerr.ErrUnimplemented):
		return fmt.Errorf("%s does not serve this yet: %w", service, err)
	default:
		return fmt.Errorf("%s: %w", service, err)
	}
}

// logOf says where a service's last words are.
func logOf(service string) string {
	return fmt.Sprintf("its last words are in its log: journalctl -u polylet-%s, or what polylet run writes", service)
}

// podsyncPeer is what the commands about pods ask.
type podsyncPeer struct {
	conn *grpc.ClientConn
	pods podsv1alpha1.PodsClient
	sync podsyncv1.PodSyncServiceClient
}

func dialPodsync(dir string) (*podsyncPeer, error) {
	conn, err := dial(dir, service.Podsync)
	if err != nil {
		return nil, err
	}
	return &podsyncPeer{conn: conn, pods: podsv1alpha1.NewPodsClient(conn), sync: podsyncv1.NewPodSyncServiceClient(conn)}, nil
}

// list returns the node's pods.
func (p *podsyncPeer) list(ctx context.Context) ([]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := p.pods.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
	if err != nil {
		return nil, explainCall(service.Podsync, err)
	}
	pods := make([]*v1.Pod, 0, len(resp.GetPods()))
	for i, raw := range resp.GetPods() {
		pod := &v1.Pod{}
		if err := pod.Unmarshal(raw); err != nil {
			return nil, fmt.Errorf("read pod %d of podsync's list: %w", i, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func (p *podsyncPeer) explain(ctx context.Context, ref *podsyncv1.PodRef) (*podsyncv1.ExplainPodResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := p.sync.ExplainPod(ctx, &podsyncv1.ExplainPodRequest{Pod: ref})
	if err != nil {
		return nil, explainCall(service.Podsync, err)
	}
	return resp, nil
}

// age is a time ago as people say it.
func age(since time.Time, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	d := max(now.Sub(since), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// orDash shows that there is nothing.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// oneLine keeps a table a table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
