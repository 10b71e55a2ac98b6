// Package peer speaks with one plugin of the node at the socket at which it registers
// itself. It owns how long a plugin may take and how much it may say; it must never
// decide whether a plugin is taken.
// Source: https://github.com/kubernetes/kubelet/tree/master/pkg/apis/pluginregistration
package peer

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/polylet/polylet/internal/rpc"
)

// How long a plugin may take to answer. The first answer takes the connection's time,
// too.
const (
	infoTimeout   = 10 * time.Second
	notifyTimeout = 5 * time.Second
)

// mostOfAnAnswer is how much a plugin may say of itself, in bytes.
const mostOfAnAnswer = 64 << 10

// Info is what a plugin says of itself.
type Info struct {
	Type, Name, Endpoint string
	Versions             []string
}

// Plugin is a connection with a plugin. See Dial.
type Plugin struct {
	conn   *grpc.ClientConn
	client registration.RegistrationClient
}

// Dial returns a connection over what connect opens; it connects when it is used.
func Dial(connect func(context.Context) (net.Conn, error)) (*Plugin, error) {
	conn, err := grpc.NewClient("passthrough:///plugin", append(rpc.Bounded(mostOfAnAnswer),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return connect(ctx) }),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithWriteBufferSize(4<<10),
	)...)
	if err != nil {
		return nil, err
	}
	return &Plugin{conn, registration.NewRegistrationClient(conn)}, nil
}

// Close ends the connection.
func (p *Plugin) Close() { _ = p.conn.Close() }

// Info asks a plugin what it is.
func (p *Plugin) Info(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	info, err := p.client.GetInfo(ctx, &registration.InfoRequest{})
	return Info{Type: info.GetType(), Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions()}, err
}

// Notify tells a plugin that it was taken, or why not; why not is what it returns then.
func (p *Plugin) Notify(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	said := &registration.RegistrationStatus{PluginRegistered: why == nil}
	if why != nil {
		said.Error = why.Error()
	}
	_, err := p.client.NotifyRegistrationStatus(ctx, said)
	return errors.Join(why, err)
}
