package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/service"
)

// asksApiserver is how the owner of the configuration asks the apiserver: by itself, and
// where it has no network, as under systemd, through nodestatus.
func (l *live) asksApiserver(kubeconfig string) func(context.Context) error {
	bySelf := asksApiserver(kubeconfig)
	if bySelf == nil {
		return nil
	}
	return func(ctx context.Context) error {
		own, cancel := context.WithTimeout(ctx, time.Second)
		err := bySelf(own)
		cancel()
		if err == nil {
			return nil
		}
		if through := l.asksThrough(ctx); through != nil {
			return fmt.Errorf("%w; by nodestatus: %w", err, through)
		}
		return nil
	}
}

// asksThrough has nodestatus ask.
func (l *live) asksThrough(ctx context.Context) error {
	conn, err := l.dial(service.Nodestatus)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := nodestatusv1.NewNodeStatusServiceClient(conn).AskApiserver(ctx, &nodestatusv1.AskApiserverRequest{}, grpc.MaxCallRecvMsgSize(mostOfAnAnswer))
	if err == nil && answer.GetError() != "" {
		err = errors.New(answer.GetError())
	}
	return err
}

// asksApiserver asks the apiserver of a kubeconfig for its version, with no credential and
// nothing of the configuration: any answer will do. Nil without a kubeconfig.
func asksApiserver(kubeconfig string) func(context.Context) error {
	if kubeconfig == "" {
		return nil
	}
	return func(ctx context.Context) error {
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("ask the apiserver of %s: %w", kubeconfig, err)
		}
		client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
		if err != nil {
			return fmt.Errorf("ask the apiserver of %s: %w", kubeconfig, err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+"/version", nil)
		if err != nil {
			return fmt.Errorf("ask the apiserver of %s: %w", kubeconfig, err)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
}
