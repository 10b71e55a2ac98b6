package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig that names files, so that a rotated
// certificate is picked up. With embed the files' contents go in, for a person
// to copy it around.
func writeKubeconfig(path, server, caFile string, client pair, embed bool) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["polylet"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: caFile}
	cfg.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: client.cert, ClientKey: client.key}
	cfg.Contexts["polylet"] = &clientcmdapi.Context{Cluster: "polylet", AuthInfo: "user"}
	cfg.CurrentContext = "polylet"
	if embed {
		if err := clientcmdapi.FlattenConfig(cfg); err != nil {
			return fmt.Errorf("write kubeconfig %s: %w", path, err)
		}
	}
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
