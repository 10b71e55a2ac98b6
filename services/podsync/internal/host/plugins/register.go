package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// How long a plugin may take to answer. The first answer takes the connection's time,
// too.
const (
	infoTimeout   = 10 * time.Second
	notifyTimeout = 5 * time.Second
)

// mostOfAnAnswer is how much a plugin may say of itself, in bytes.
const mostOfAnAnswer = 64 << 10

// register asks a plugin what it is, has it taken, and tells it so. The Handler is that
// which has taken it, though the plugin could not be told so; else nil.
func (r *Registry) register(ctx context.Context, s socket) (Handler, Plugin, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, Plugin{}, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := ask(ctx, client)
	if err != nil {
		return nil, Plugin{}, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s: %w", s.path, err)
	}
	p := Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = s.path
	}
	handler := r.cfg.Handlers[info.GetType()]
	if handler == nil {
		return nil, p, notify(ctx, client, r.noHandler(info.GetType(), s))
	}
	if err := handler.Register(ctx, p); err != nil {
		return nil, p, notify(ctx, client, fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err))
	}
	if err := notify(ctx, client, nil); err != nil {
		return handler, p, fmt.Errorf("RegisterPlugin error -- failed to send registration status at socket %s: %w", s.path, err)
	}
	return handler, p, nil
}

// noHandler says which types are taken.
func (r *Registry) noHandler(kind string, s socket) error {
	types := strings.Join(slices.Sorted(maps.Keys(r.cfg.Handlers)), ", ")
	if types == "" {
		types = "none"
	}
	return fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %.64s at socket %s; types that this node takes: %s", kind, s.path, types)
}

func ask(ctx context.Context, client registration.RegistrationClient) (*registration.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	return client.GetInfo(ctx, &registration.InfoRequest{})
}

// notify tells a plugin that it was taken, or why not; why not is what it returns then.
func notify(ctx context.Context, client registration.RegistrationClient, why error) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	said := &registration.RegistrationStatus{PluginRegistered: why == nil}
	if why != nil {
		said.Error = why.Error()
	}
	_, err := client.NotifyRegistrationStatus(ctx, said)
	return errors.Join(why, err)
}

// dial returns a connection to this very socket, and to none that has taken its name.
func (s socket) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.connect(ctx) }),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(mostOfAnAnswer),
		grpc.WithStaticStreamWindowSize(mostOfAnAnswer),
		grpc.WithStaticConnWindowSize(mostOfAnAnswer),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithWriteBufferSize(4<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostOfAnAnswer)),
	)
}

func (s socket) connect(ctx context.Context) (net.Conn, error) {
	fd, err := unix.Open(s.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if id, _, err := identify(fd, ""); err != nil || id != s.id {
		return nil, fmt.Errorf("%s is another file by now", s.path)
	}
	// By its descriptor the name may also be longer than an address can be.
	return (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
}
