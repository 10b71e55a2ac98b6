package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

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
