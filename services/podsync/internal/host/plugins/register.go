package plugins

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/plugins/peer"
)

// register asks a plugin what it is, has it taken, and tells it so. The Handler is that
// which has taken it, though the plugin could not be told so; else nil.
func (r *Registry) register(ctx context.Context, s socket) (Handler, Plugin, error) {
	plugin, err := peer.Dial(s.connect)
	if err != nil {
		return nil, Plugin{}, err
	}
	defer plugin.Close()
	info, err := plugin.Info(ctx)
	if err != nil {
		return nil, Plugin{}, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s: %w", s.path, err)
	}
	p := Plugin{Name: info.Name, Endpoint: info.Endpoint, Versions: info.Versions}
	if p.Endpoint == "" {
		p.Endpoint = s.path
	}
	handler := r.cfg.Handlers[info.Type]
	if handler == nil {
		return nil, p, plugin.Notify(ctx, r.noHandler(info.Type, s))
	}
	if err := handler.Register(ctx, p); err != nil {
		return nil, p, plugin.Notify(ctx, fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err))
	}
	if err := plugin.Notify(ctx, nil); err != nil {
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

// connect returns a connection to this very socket, and to none that has taken its name.
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
