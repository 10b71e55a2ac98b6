package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// liveness answers at /healthz whether the driver at a socket answers, until ctx is done.
func liveness(ctx context.Context, socket, address string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asking, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := csi.NewIdentityClient(conn).Probe(asking, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // It ends with this process, too.
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
