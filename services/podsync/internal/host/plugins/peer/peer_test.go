package peer

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin says what it is, and keeps what it is told.
type plugin struct {
	registration.UnimplementedRegistrationServer
	name string
	told []string
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: p.name, Endpoint: "/csi.sock", SupportedVersions: []string{"1.0.0"}}, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if p.told = append(p.told, s.GetError()); s.GetPluginRegistered() != (s.GetError() == "") {
		return nil, errors.New("it is taken and refused")
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func start(t *testing.T, p *plugin) *Plugin {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	go func() { _ = server.Serve(listener) }()
	conn, err := Dial(func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop() })
	return conn
}

func TestAPluginSaysWhatItIsAndIsToldWhetherItIsTaken(t *testing.T) {
	p := &plugin{name: "d.example"}
	conn := start(t, p)
	info, err := conn.Info(t.Context())
	if err != nil || info.Type != "CSIPlugin" || info.Name != "d.example" || info.Endpoint != "/csi.sock" || !slices.Equal(info.Versions, []string{"1.0.0"}) {
		t.Errorf("%+v, %v", info, err)
	}
	why := errors.New("nobody wants it")
	if err := conn.Notify(t.Context(), why); !errors.Is(err, why) {
		t.Errorf("a refusal returns %v", err)
	}
	if err := conn.Notify(t.Context(), nil); err != nil || !slices.Equal(p.told, []string{"nobody wants it", ""}) {
		t.Errorf("%q, %v", p.told, err)
	}
}

func TestAPluginThatSaysTooMuchIsNotRead(t *testing.T) {
	conn := start(t, &plugin{name: strings.Repeat("d", mostOfAnAnswer)})
	if _, err := conn.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Error(err)
	}
}
