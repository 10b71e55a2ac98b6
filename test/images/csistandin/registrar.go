package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar registers a driver with the node's agent.
type registrar struct {
	registration.UnimplementedRegistrationServer
	address, path, directory string
	name                     string
	refused                  chan error
}

func (r *registrar) run(ctx context.Context) error {
	name, err := r.ask(ctx)
	if err != nil {
		return err
	}
	r.name, r.refused = name, make(chan error, 1)
	path := filepath.Join(r.directory, name+"-reg.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Printf("driver %s waits at %s for the agent", name, path)
	select {
	case <-ctx.Done():
	case err = <-r.refused:
	case err = <-served:
	}
	server.Stop() // It removes the socket, which is how the agent learns of the end.
	return err
}

// ask waits for the driver and asks it for its name.
func (r *registrar) ask(ctx context.Context) (string, error) {
	conn, err := grpc.NewClient("unix://"+r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	for {
		calling, cancel := context.WithTimeout(ctx, 10*time.Second)
		info, err := csi.NewIdentityClient(conn).GetPluginInfo(calling, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return info.GetName(), nil
		}
		log.Printf("ask the driver at %s for its name: %v; it is tried again", r.address, err)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// GetInfo says which driver it is.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.path, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus hears what the agent made of it. The container is started again
// after a refusal, and asks anew.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", s.GetPluginRegistered(), s.GetError())
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- fmt.Errorf("the agent refused the driver: %s", s.GetError()):
		default: // Another call was first.
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
